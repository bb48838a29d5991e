"""Planted silent fallbacks: can any of them be told as a pass?"""
