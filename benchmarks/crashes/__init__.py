"""Kill runs, fill disks and crash suites, and check that no stored result is lost."""
