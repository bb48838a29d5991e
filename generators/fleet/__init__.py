"""How suites run on other machines: a lab machine over ssh, a cluster. Verdicts are given here."""
