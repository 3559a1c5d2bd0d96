"""Decisions for the mean of a metric over units: the pixels of each image, the labels of each row.

A threshold is chosen for all rows together. Where the metric is measured on every image or row and then averaged, each
unit has a best decision of its own, which follows from its probabilities and needs no labels.

- ``per_image``: masks and class maps of images.
- ``per_row``: labels of rows; ``label_sets`` is its part for labels that depend on each other.
- ``expected_values``: the expected metric of the k most probable pixels, for every k.
- ``ranked_units``: the best k, by a sort.
- ``count_moments``: the first moments of the number of positives, and the two numbers that stand for it.
- ``exclusive_pixels``: classes that exclude each other.
- ``unit_checks``: what can be wrong with the arguments.
"""
