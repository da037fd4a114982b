"""`shunter provider`: list the plugins and instances, check one, begin a new plugin."""
