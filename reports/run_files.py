"""placeholder until formats land"""

from pathlib import Path


def write_run_reports(result, evidence, folder):
    return Path("none")
