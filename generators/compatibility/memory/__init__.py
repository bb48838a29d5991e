"""Does a model fit into a device's memory, how much is missing, and what is the smallest change that makes it fit?
Arithmetic on estimates (`generators/derivation/memory` makes them); nothing is built here."""
