"""Models, their compatibility with targets, and the suites that prove it."""

if __name__ == "generators":
    from hwcompat.checkout import give_full_name

    give_full_name(__name__)
