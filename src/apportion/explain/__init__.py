"""The worked example: one answer, one score, and what every token has to do with it."""

from apportion.explain.example import Example, Inputs
from apportion.explain.page import explain_page
from apportion.explain.walk import explain_example

__all__ = ["Example", "Inputs", "explain_example", "explain_page"]
