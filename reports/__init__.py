"""Evidence becomes findings with causes and remedies, and findings become reports."""
