"""Tables, claims and pages made from finished runs."""
