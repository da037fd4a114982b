"""How a cluster is found and entered: kubeconfigs, programs that print tokens, files that are renewed, certificates."""

from __future__ import annotations

import base64
import datetime
import json
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from shunter_providers.clouds.kubernetes import access as kube_access
from shunter_providers.clouds.kubernetes.provider import KubernetesProvider
from shunter_providers.clouds.kubernetes.settings import KubernetesSettings, access_of
from shunter_providers.contract import Fault, Instance, ProviderError
from shunter_providers.testing import Unpaced
from support.clouds.kubernetes import KubernetesCluster

TOKEN = "a-token-of-a-cluster-4711"


@pytest.fixture
def cluster() -> Iterator[KubernetesCluster]:
    with KubernetesCluster(TOKEN) as running:
        yield running


def kubeconfig(server: str, **user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "training"}},
            {"name": "there", "context": {"cluster": "nowhere", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }


def provider(environment: dict[str, str] | None = None, **settings: Any) -> KubernetesProvider:
    return KubernetesProvider(
        Instance(
            "kubernetes", "kubernetes", {"timeout_s": 5, **settings}, environment=environment or {}, pacer=Unpaced()
        )
    )


async def user_of(made: KubernetesProvider) -> str:
    identity = await made.whoami()
    await made.close()
    return f"{identity.limits['user']} {identity.account.rpartition('/')[2]}"


ME = "system:serviceaccount:training:shunter training"


async def test_a_kubeconfig_is_taken_from_the_variable_that_kubectl_reads(
    cluster: KubernetesCluster, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(kubeconfig(cluster.url, token=TOKEN)))

    made = provider({"KUBECONFIG": f"{tmp_path / 'missing'}:{file}"})

    assert await user_of(made) == ME


async def test_a_kubeconfig_may_stand_in_the_settings(cluster: KubernetesCluster) -> None:
    made = provider(kubeconfig_secret=json.dumps(kubeconfig(cluster.url, token=TOKEN)))

    assert await user_of(made) == ME


async def test_a_program_prints_the_token_once_and_again_when_the_cluster_refuses_it(
    cluster: KubernetesCluster, tmp_path: Path
) -> None:
    prints, runs = tmp_path / "token", tmp_path / "runs"
    prints.write_text("an-old-token")
    runs.write_text("")
    program = (
        "import json, os, pathlib, sys\n"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
        "runs, prints = map(pathlib.Path, sys.argv[1:])\n"
        "runs.write_text(runs.read_text() + os.environ['LETTER'])\n"
        "print(json.dumps({'kind': 'ExecCredential', 'status': {'token': prints.read_text()}}))\n"
    )
    runs_it = {
        "command": sys.executable,
        "args": ["-c", program, str(runs), str(prints)],
        "env": [{"name": "LETTER", "value": "x"}],
        "apiVersion": "client.authentication.k8s.io/v1",
    }
    made = provider(kubeconfig_secret=json.dumps(kubeconfig(cluster.url, exec=runs_it)))
    with pytest.raises(ProviderError) as refused:
        await made.whoami()
    prints.write_text(TOKEN)

    who = await user_of(made)

    assert refused.value.fault is Fault.AUTH
    assert who == ME
    assert runs.read_text() == "xxx"


async def test_a_program_is_told_of_the_cluster_where_the_kubeconfig_says_so(
    cluster: KubernetesCluster, tmp_path: Path
) -> None:
    saw = tmp_path / "saw"
    program = (
        "import json, os, pathlib, sys\n"
        "pathlib.Path(sys.argv[1]).write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"print(json.dumps({{'status': {{'token': '{TOKEN}', 'expirationTimestamp': '2999-01-01T00:00:00Z'}}}}))\n"
    )
    runs_it = {"command": sys.executable, "args": ["-c", program, str(saw)], "provideClusterInfo": True}
    made = provider(kubeconfig_secret=json.dumps(kubeconfig(cluster.url, exec=runs_it)))

    await user_of(made)

    assert json.loads(saw.read_text())["spec"] == {"interactive": False, "cluster": {"server": cluster.url}}


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.exit('please log in')", "ended with 1: please log in"),
        ("print('no json')", "printed no ExecCredential"),
    ],
)
async def test_a_program_that_gives_no_token_is_told_with_what_it_said(
    cluster: KubernetesCluster, program: str, said: str
) -> None:
    runs_it = {"command": sys.executable, "args": ["-c", program]}
    made = provider(kubeconfig_secret=json.dumps(kubeconfig(cluster.url, exec=runs_it)))

    with pytest.raises(ProviderError, match=said) as refused:
        await made.whoami()

    await made.close()
    assert refused.value.fault is Fault.AUTH


async def test_a_program_that_is_not_there_is_told(cluster: KubernetesCluster) -> None:
    runs_it = {"command": "no-such-program-4711"}
    made = provider(kubeconfig_secret=json.dumps(kubeconfig(cluster.url, exec=runs_it)))

    with pytest.raises(ProviderError, match="no-such-program-4711 does not start"):
        await made.whoami()

    await made.close()


async def test_a_token_file_that_was_renewed_is_read_again(cluster: KubernetesCluster, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    made = provider(server=cluster.url, token_file=str(file), namespace="training")
    await made.whoami()
    cluster.token = "another-token"
    file.write_text("another-token\n")

    assert await user_of(made) == ME


async def test_inside_a_cluster_the_pods_own_account_is_used(cluster: KubernetesCluster, tmp_path: Path) -> None:
    for name, text in (("token", TOKEN), ("namespace", "training\n"), ("ca.crt", "")):
        (tmp_path / name).write_text(text)
    host, port = cluster.url.removeprefix("http://").split(":")

    access = kube_access.in_cluster({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}, tmp_path)

    assert access is not None
    assert (access.server, access.namespace) == (f"https://{host}:{port}", "training")
    assert kube_access.in_cluster({}, tmp_path) is None
    assert kube_access.in_cluster({"KUBERNETES_SERVICE_HOST": host}, tmp_path / "none") is None


@pytest.mark.parametrize(
    ("change", "settings", "said"),
    [
        ({}, {"context": "nobody"}, "no context 'nobody' \\(it has: here, there\\)"),
        ({}, {"context": "there"}, "no cluster 'nowhere'"),
        ({"current-context": None}, {}, "no current-context"),
        ({"clusters": [{"name": "c", "cluster": {"server": "example.com"}}]}, {}, "no server that begins with https"),
        ({"users": [{"name": "u", "user": {"username": "a", "password": "b"}}]}, {}, "use exec or a token"),
        ({"users": [{"name": "u", "user": {"client-key-data": "AAAA"}}]}, {}, "not both"),
        ({"users": [{"name": "u", "user": {"client-key-data": "%"}}]}, {}, "no base64"),
        ({"users": [{"name": "u", "user": {"client-key": "/no/such"}}]}, {}, "cannot be read"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_told_in_words(
    change: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    text = json.dumps({**kubeconfig("https://127.0.0.1:1", token=TOKEN), **change})

    with pytest.raises(ProviderError, match=said) as refused:
        provider(kubeconfig_secret=text, **settings)

    assert refused.value.fault is Fault.INVALID
    assert TOKEN not in refused.value.detail


def test_a_kubeconfig_that_is_no_yaml_is_told_without_its_content() -> None:
    with pytest.raises(ProviderError, match="no YAML \\(line 2\\)") as refused:
        provider(kubeconfig_secret=f"users:\n  token: {TOKEN}: [")

    assert TOKEN not in refused.value.detail


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"server": "https://127.0.0.1:1"}, "server needs token or token_file"),
        ({"token": TOKEN}, "need server"),
        ({"server": "https://x", "token": TOKEN, "kubeconfig_secret": "{}"}, "two ways into a cluster"),
        ({"server": "x", "token": TOKEN}, "server"),
        ({"kubeconfig": "/no/such/file"}, "there is no kubeconfig"),
        ({"server": "https://x", "token": TOKEN, "ca_file": "/no/such/ca"}, "/no/such/ca"),
        ({"server": "https://x", "token": TOKEN, "namespace": "A B"}, "namespace"),
        ({"server": "https://x", "token": TOKEN, "prices": {"a": 0}}, "prices.a"),
        ({"server": "https://x", "token": TOKEN, "run_as_user": 1000, "capabilities": ["IPC_LOCK"]}, "run_as_user"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ProviderError, match=said) as refused:
        provider(**settings)

    assert refused.value.fault is Fault.INVALID
    assert TOKEN not in refused.value.detail


async def test_a_cluster_is_checked_by_its_authority_and_let_in_by_a_certificate(tmp_path: Path) -> None:
    certificate, key = a_certificate()
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key), "token": TOKEN}
    with KubernetesCluster(TOKEN) as cluster:
        behind_tls(cluster, certificate, key, tmp_path)
        known = kubeconfig(cluster.url.replace("http:", "https:"), **user)
        known["clusters"][0]["cluster"] |= {
            "certificate-authority-data": encoded(certificate),
            "tls-server-name": "a-cluster.example",
        }
        trusting, strange = provider(kubeconfig_secret=json.dumps(known)), a_stranger(known)

        who = await user_of(trusting)
        with pytest.raises(ProviderError, match="certificate verify failed") as refused:
            await strange.whoami()
        await strange.close()

    assert who == ME
    assert refused.value.fault is Fault.TRANSIENT


def a_stranger(known: dict[str, Any]) -> KubernetesProvider:
    """Who trusts another authority."""
    other, _ = a_certificate()
    cluster = {**known["clusters"][0]["cluster"], "certificate-authority-data": encoded(other)}
    return provider(kubeconfig_secret=json.dumps({**known, "clusters": [{"name": "c", "cluster": cluster}]}))


def behind_tls(cluster: KubernetesCluster, certificate: bytes, key: bytes, folder: Path) -> None:
    """The same server from now on speaks TLS, and wants a certificate that is the server's own."""
    pair = folder / "pair.pem"
    pair.write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    context.load_verify_locations(pair)
    context.verify_mode = ssl.CERT_REQUIRED
    server = cluster._server
    assert server is not None
    server.socket = context.wrap_socket(server.socket, server_side=True)


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def test_client_certificates_are_loaded_and_a_wrong_one_is_told() -> None:
    certificate, key = a_certificate()
    text = json.dumps(
        kubeconfig(
            "https://127.0.0.1:1",
            **{
                "client-certificate-data": base64.b64encode(certificate).decode(),
                "client-key-data": base64.b64encode(key).decode(),
            },
        )
    )
    instance = Instance("kubernetes", "kubernetes", {})
    access = access_of(instance, KubernetesSettings.model_validate({"kubeconfig_secret": text}))

    assert access.certificates is not None
    context = access.certificates()

    assert context.verify_mode is ssl.CERT_REQUIRED
    assert kube_access.context_of(certificate, unchecked=True).verify_mode is ssl.CERT_NONE
    with pytest.raises(ProviderError, match="certificates of the kubeconfig cannot be used"):
        kube_access.context_of(None, (b"no certificate", b"no key"))


def a_certificate() -> tuple[bytes, bytes]:
    """One that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("a-cluster.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return made.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
