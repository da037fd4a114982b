"""HTTP as the API speaks it: bodies, parameters, pages, answers, problems."""
