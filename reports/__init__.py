"""Findings with causes and remedies from evidence, and reports of them."""

if __name__ == "reports":
    from hwcompat.checkout import give_full_name

    give_full_name(__name__)
