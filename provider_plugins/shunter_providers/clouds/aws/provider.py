"""AWS: virtual machines of EC2 through apache-libcloud, in any number of regions, on demand, as spot or reserved.

A launch bears the node's token as EC2's client token, so that it may be sent again; a node is known by a tag. User data
takes 16 KiB, which holds the keys and not the agent: the service goes in by SSH. Nodes are in a security group of their
own, `shunter`, whose members reach each other on every port, and everybody else reaches none but SSH.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Network
from typing import Any, ClassVar, Final

from shunter_providers.cloud_kit.blocking import PaceOfLoop
from shunter_providers.cloud_kit.boot import cloud_init
from shunter_providers.cloud_kit.naming import looks_like, token_of
from shunter_providers.cloud_kit.options import read_options
from shunter_providers.cloud_kit.paced import PacedProvider
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.aws.ec2 import Account, Ec2, where
from shunter_providers.clouds.aws.prices import PriceList
from shunter_providers.clouds.aws.settings import AwsOptions, AwsSettings, is_zone_of
from shunter_providers.clouds.aws.words import (
    DEPLOYMENT_TAG,
    NOT_GONE,
    TOKEN_TAG,
    Image,
    Market,
    Place,
    Reservation,
    handle_of,
    newest,
    offers_of,
    order,
    reservation_of,
    spot_prices,
    view_of,
)
from shunter_providers.contract import (
    Capabilities,
    Fault,
    Identity,
    Instance,
    Intent,
    Launch,
    NodeCondition,
    NodeView,
    Offer,
    OfferQuery,
    ProviderError,
    Rate,
    Scope,
    SelfStop,
)
from shunter_providers.plugin_settings import read_settings

_log = logging.getLogger(__name__)

_PACING: Final = (Rate(5, 2.5, "create"), Rate(40, 4.0))
_USER_DATA_BYTES: Final = 16384
_GROUP: Final = "shunter"
_HANDLE: Final = r"[a-z]{2,4}(-[a-z]+)+-\d/i-[0-9a-f]{8,17}"
_KINDS: Final = ("p*", "g*")
"""Types that have GPUs; the same letters stand for a few that have none."""


class AwsProvider(PacedProvider[Ec2]):
    """Instances of one account."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        bootstrap="ssh",
        idempotency="token",
        kinds=("vm",),
        runs_images=True,
        runs_images_by_docker=True,
        capacities=("on_demand", "spot", "reserved"),
        price_source="mixed",
        fabric="ethernet",
        pacing=_PACING,
        options=tuple(AwsOptions.model_fields),
        self_stop=SelfStop.ENDS_BILLING,
        visibility_delay_s=60.0,
        readiness_deadline_s=900.0,
        scan_interval_s=20.0,
        create_timeout_s=60.0,
        console=True,
    )

    def __init__(self, instance: Instance) -> None:
        super().__init__()
        settings = self._settings = read_settings(instance, AwsSettings)
        object.__setattr__(self, "capabilities", settings.adjusted(self.capabilities))  # of this instance alone
        self.instance = instance
        key = settings.access_key_id.get_secret_value()
        token = settings.session_token.get_secret_value() if settings.session_token is not None else None
        secret = settings.secret_access_key.get_secret_value()
        self._account = Account(key, secret, token, settings.base_url, settings.timeout_s)
        self._pace = PaceOfLoop(instance, key, _PACING)
        self._prices = PriceList(instance.name)
        self._unseen: dict[str, float] = {}
        """Handles of nodes that EC2 may not show yet, and when they were made."""

    def connect(self) -> Ec2:
        """One for each call; nothing is asked yet."""
        return Ec2(self._account, self._pace.take_turn)

    def translate(self, error: Exception, *, creates: bool) -> ProviderError:
        """What `Ec2` did not foresee."""
        fault = Fault.AMBIGUOUS if creates else Fault.TRANSIENT
        return ProviderError(fault, f"{type(error).__name__}: {error}", may_have_created=creates)

    def ask_identity(self, client: Ec2) -> Identity:
        """The account, and a look into each region: one that is not enabled, or does not exist, is named so."""
        first = self._settings.regions[0]
        caller = client.ask(first, "GetCallerIdentity").inside("GetCallerIdentityResult")
        for region in self._settings.regions:
            client.ask(region, "DescribeInstances", {"MaxResults": 5})
        return Identity(caller.text("Account"), {"arn": caller.text("Arn"), "regions": list(self._settings.regions)})

    async def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """See the contract. All regions at once; one that fails hides no other."""
        ask = super().offers
        calls = [ask(replace(query, regions=(region,))) for region in self._settings.regions]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        if len(failed) == len(answers):
            raise failed[0]
        for error in failed:
            _log.warning("provider %s: a region's offers are missing: %s", self.instance.name, error)
        return [offer for answer in answers if not isinstance(answer, BaseException) for offer in answer]

    def ask_offers(self, client: Ec2, query: OfferQuery) -> Sequence[Offer]:
        """Those of the regions in the query."""
        return [offer for region in query.regions for offer in self._offers_in(client, region)]

    def make(self, client: Ec2, intent: Intent) -> str:
        """Launch. Where the token was used for another order (a newer image, say) its node is looked for instead."""
        region = intent.offer.region
        options = read_options(intent, AwsOptions, self.instance.name)
        keys = cloud_init(replace(intent, launch=Launch((), {})), largest_bytes=_USER_DATA_BYTES)
        if intent.offer.capacity == "reserved" and (known := self._find(client, region, intent.token)):
            return known  # the reservation has no more room once it is in
        place = self._place(client, intent, options)
        try:
            answer = client.ask(region, "RunInstances", order(intent, place, keys, self._settings, options))
        except ProviderError as exc:
            known = self._find(client, region, intent.token) if exc.fault is Fault.CONFLICT else None
            if known is None:
                raise
            return known
        made = answer.items("instancesSet")
        if len(made) != 1 or not looks_like(handle := handle_of(region, made[0]), _HANDLE):
            detail = f"{region}: the launch answered {len(made)} instances, or one with a strange id"
            raise ProviderError(Fault.AMBIGUOUS, detail, may_have_created=True)
        self._note_made(handle)
        return handle

    def look(self, client: Ec2, handle: str) -> NodeView:
        """One node; one that was just made here and is not shown yet is not gone."""
        gone = NodeView(handle, None, NodeCondition.GONE, "no such node")
        if not looks_like(handle, _HANDLE):
            return gone
        region, _, id_ = handle.partition("/")
        try:
            views = self._views(client, region, {"InstanceId": [id_]})
        except ProviderError as exc:
            if exc.fault is not Fault.NOT_FOUND:
                raise
            views = []
        if views:
            self._unseen.pop(handle, None)
            return views[0]
        return (
            replace(gone, condition=NodeCondition.PENDING, reason="not shown yet") if self._may_appear(handle) else gone
        )

    def look_for_all(self, client: Ec2, deployment: str) -> Sequence[NodeView]:
        """Those of a deployment in every region, on every page."""
        wanted = where(**{f"tag:{DEPLOYMENT_TAG}": deployment, "instance_state_name": NOT_GONE})
        return [
            view
            for region in self._settings.regions
            for view in self._views(client, region, {"Filter": wanted, "MaxResults": 1000})
            if token_of(view.token, deployment) and view.condition is not NodeCondition.GONE
        ]

    def end(self, client: Ec2, handle: str) -> bool:
        """Terminate, and look again: what EC2 accepts takes a while. Disks and addresses go with the instance."""
        if not looks_like(handle, _HANDLE):
            return True
        region, _, id_ = handle.partition("/")
        try:
            client.ask(region, "TerminateInstances", {"InstanceId": [id_]})
        except ProviderError as exc:
            if exc.fault is not Fault.NOT_FOUND:
                raise
            return not self._may_appear(handle)
        self._unseen.pop(handle, None)
        return self.look(client, handle).condition is NodeCondition.GONE

    async def console(self, handle: str) -> str:
        """See the contract."""
        return await self._in_thread(lambda client: _console(client, handle))

    def _offers_in(self, client: Ec2, region: str) -> list[Offer]:
        settings = self._settings
        names = [*_KINDS, *sorted({name.rpartition("/")[2] for name in settings.usd_per_hour})]
        wanted = where(instance_type=names, **{"processor_info.supported_architecture": "x86_64"})
        kinds = list(client.pages(region, "DescribeInstanceTypes", {"Filter": wanted}, "instanceTypeSet"))
        asked = {"ProductDescription": ["Linux/UNIX"], "StartTime": _now(), "Filter": where(instance_type=names)}
        spot = spot_prices(list(client.pages(region, "DescribeSpotPriceHistory", asked, "spotPriceHistorySet")))
        reserved: dict[str, int] = {}
        for row in self._reservations(client, region):
            name = row.text("instanceType")
            reserved[name] = reserved.get(name, 0) + row.count("availableInstanceCount", 0)
        market = Market(self._prices.of(client, region), spot, reserved)
        return [offer for kind in kinds for offer in offers_of(kind, region, market, settings)]

    def _reservations(self, client: Ec2, region: str, **more: str) -> list[Fields]:
        wanted = {"Filter": where(state="active", **more)}
        return list(client.pages(region, "DescribeCapacityReservations", wanted, "capacityReservationSet"))

    def _place(self, client: Ec2, intent: Intent, options: AwsOptions) -> Place:
        region = intent.offer.region
        if options.zone is not None and not is_zone_of(region, options.zone):
            raise self._wrong("zone", f"{options.zone} is no availability zone of {region}")
        subnet = options.subnet_id or self._settings.subnets.get(region)
        network = self._network_of(client, region, subnet)
        return Place(
            image=self._image(client, region, options.image_id),
            security_group=self._settings.security_groups.get(region) or self._group_in(client, region, network),
            subnet=subnet,
            reservation=self._reservation(client, intent, options) if intent.offer.capacity == "reserved" else None,
        )

    def _image(self, client: Ec2, region: str, image_id: str | None) -> Image:
        name, owner = self._settings.image_name, self._settings.image_owner
        by_name = {"Owner": [owner], "Filter": where(name=name, state="available", architecture="x86_64")}
        asked = {"ImageId": [image_id]} if image_id is not None else by_name
        image = newest(client.ask(region, "DescribeImages", asked).items("imagesSet"))
        if image is None:
            place = f"providers.{self.instance.name}.settings.image_name"
            raise ProviderError(
                Fault.INVALID, f"{place}: {owner} has no image {name!r} in {region}", scope=Scope.REGION
            )
        return image

    def _network_of(self, client: Ec2, region: str, subnet: str | None) -> str:
        """The VPC. A subnet in a local zone may lie in another country than its region, and is refused."""
        if subnet is None:
            found = client.ask(region, "DescribeVpcs", {"Filter": where(is_default="true")}).items("vpcSet")
            if not found:
                place = f"providers.{self.instance.name}.settings.subnets"
                detail = f"{place}: the account has no default network in {region}: name a subnet"
                raise ProviderError(Fault.INVALID, detail, scope=Scope.REGION)
            return found[0].text("vpcId")
        found = client.ask(region, "DescribeSubnets", {"SubnetId": [subnet]}).items("subnetSet")
        if not found or not is_zone_of(region, found[0].text("availabilityZone")):
            raise self._wrong("subnet_id", f"{subnet} is not in an availability zone of {region}")
        return found[0].text("vpcId")

    def _group_in(self, client: Ec2, region: str, network: str) -> str:
        """The security group of nodes; made when it is not there, finished when it was left without rules."""
        found = _groups(client, region, network)
        if found and found[0].items("ipPermissions"):
            return found[0].text("groupId")
        group = found[0].text("groupId") if found else _new_group(client, region, network)
        try:
            client.ask(region, "AuthorizeSecurityGroupIngress", _rules(group, self._settings.ssh_from))
        except ProviderError as exc:
            if exc.fault is not Fault.CONFLICT:  # somebody else gave it its rules meanwhile
                raise
        return group

    def _reservation(self, client: Ec2, intent: Intent, options: AwsOptions) -> Reservation:
        region, name = intent.offer.region, intent.offer.instance_type
        rows = self._reservations(client, region, instance_type=name)
        wanted = options.capacity_reservation_id
        free = [row for row in rows if row.count("availableInstanceCount", 0) > 0]
        known = sorted(reservation_of(row) for row in free)
        chosen = [one for one in known if wanted in (None, one.id) and is_zone_of(region, one.zone)]
        if not chosen:
            detail = f"{wanted or 'no capacity reservation'} has room for a {name} in {region}"
            raise ProviderError(Fault.NO_CAPACITY, detail, scope=Scope.OFFER)
        return chosen[0]

    def _views(self, client: Ec2, region: str, asked: Mapping[str, Any]) -> list[NodeView]:
        reservations = client.pages(region, "DescribeInstances", asked, "reservationSet")
        return [view_of(region, one, self._settings) for some in reservations for one in some.items("instancesSet")]

    def _find(self, client: Ec2, region: str, token: str) -> str | None:
        wanted = where(**{f"tag:{TOKEN_TAG}": token, "instance_state_name": NOT_GONE})
        return next((view.handle for view in self._views(client, region, {"Filter": wanted})), None)

    def _note_made(self, handle: str) -> None:
        now = time.monotonic()
        for one, at in list(self._unseen.items()):  # other threads change it meanwhile
            if now - at > self.capabilities.visibility_delay_s:
                self._unseen.pop(one, None)
        self._unseen[handle] = now

    def _may_appear(self, handle: str) -> bool:
        made_at = self._unseen.get(handle)
        return made_at is not None and time.monotonic() - made_at < self.capabilities.visibility_delay_s

    def _wrong(self, option: str, why: str) -> ProviderError:
        return ProviderError(Fault.INVALID, f"placement.options.{self.instance.name}.{option}: {why}")


def _console(client: Ec2, handle: str) -> str:
    region, _, id_ = handle.partition("/")
    if not looks_like(handle, _HANDLE):
        return ""
    told = client.ask(region, "GetConsoleOutput", {"InstanceId": id_}).text("output", "")
    return base64.b64decode(told).decode("utf-8", "replace")


def _groups(client: Ec2, region: str, network: str) -> list[Fields]:
    wanted = {"Filter": where(group_name=_GROUP, vpc_id=network)}
    return client.ask(region, "DescribeSecurityGroups", wanted).items("securityGroupInfo")


def _new_group(client: Ec2, region: str, network: str) -> str:
    """Made now, or by somebody else a moment ago."""
    made = {"GroupName": _GROUP, "GroupDescription": "Nodes of Shunter", "VpcId": network}
    try:
        return client.ask(region, "CreateSecurityGroup", made).text("groupId")
    except ProviderError as exc:
        found = _groups(client, region, network) if exc.fault is Fault.CONFLICT else []
        if not found:
            raise
        return found[0].text("groupId")


def _rules(group: str, ssh_from: IPv4Network) -> dict[str, Any]:
    """SSH for whom the operator says, everything for each other."""
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": str(ssh_from)}]}
    return {"GroupId": group, "IpPermissions": [ssh, {"IpProtocol": "-1", "Groups": [{"GroupId": group}]}]}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
