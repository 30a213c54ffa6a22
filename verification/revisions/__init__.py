"""Where code to be judged comes from: the checkout, its revisions, and `relax/` of each as a folder of its own."""
