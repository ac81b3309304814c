"""Methods over TCP: `truth` holds the log of TCP's state against what is known otherwise, `perturbation` against none.

`oracle` compares with TCP_INFO, `witness` with a capture, `reno` and `cubic` with the laws of congestion control, by
the back-offs of `backoff`. `trials` reads what was done and recorded.
"""
