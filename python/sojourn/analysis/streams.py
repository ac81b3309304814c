"""What every method of streams has in common: trials, their counts, and which quantities and samples they become.

The trial is the unit: one stream sent once over one arm. Every interval is one over trials (Hodges-Lehmann with the
exact signed-rank interval from six trials on, Student's from three, none below), never over packets. Quantiles are of
all packets of a cell, the lost ones with infinite delay, and their intervals Woodruff's with the trial as the cluster
(`statistics.pooled`), from four trials on. Differences pair trials of one round, each the mean of its visits.

Quantities (rows of results.json; statistic; unit). `port` is the receiver, `node` who answered, `against` the cell of
the same arm that was subtracted ("load=0.0", "load_via=beside", "to=unicast", "receivers=0", "senders=1").

- all of them:
    - one_way_delay (from the actual departure), one_way_delay_intended; min mean p50 p90 p99 p99.9 max sd [ns]
    - pdv (RFC 5481: above the trial's least); p50 p99 p99.9 [ns]
    - ipdv (RFC 3393: of consecutive numbers); p1 p50 p99 [ns]
    - inter_arrival; mean p50 p99 sd [ns]
    - loss_ratio, duplicated, reordered, late, corrupted, own_drops (of the sent); ratio [1]
    - offered_pps, received_pps, achieved_ratio (offered over asked); mean [1/s, 1]
    - departure_error, departure_within_1us, departure_within_10us; as for probes [ns, 1]
    - device_latency (reference direct: by pairs of trials; one way, not halved); mean pooled [ns]
    - shift (reference direct: of medians); p50 [ns]
    - resolution (what a/a tells of the bed); pooled [ns]
- one-way:
    - queue_growth (ns of delay per ns of trial; 0: bounded); trend [1]
    - queue_bounded (share of trials); ratio [1]
    - min_frame_interval (interval: the last tried one that was not bounded to this one); knee [ns]
    - min_frame_interval (mean arrival interval of what was asked for too much); saturated [ns]
    - min_frame_interval (null, and `source` says why, where no line rate is known); calculated [ns]
- throughput:
    - throughput_pps, throughput_bps (frame with FCS), l1_bps (20 B more), user_bps (user data only); mean at_least
      [1/s bit/s]
    - inter_frame_time; mean [ns]
    - inter_frame_intercept, inter_frame_slope (of a + b x frame size); fit [ns, ns/byte]
    - clean_rate_pps (device direct; what the tester alone can, from its qualification); mean [1/s]
- loss:
    - as throughput; loss_ratio's interval is Korn and Graubard's over trials
    - loss_run, gap_run (packets lost, packets received in a row); mean max [1]
    - shift of loss_ratio: quantity loss_shift, against "to=unicast"; mean [1]
- fan-in:
    - width (of the delays within a trial, first sender); sd iqr p99-p1 [ns]
    - throughput_pps, throughput_bps (all senders together); mean at_least [1/s bit/s]
    - fairness (Jain's index of the senders' received rates; 1: equal); jain [1]
- multicast:
    - response_latency (per node, from the request's departure to the answer's arrival); min mean p50 p99 sd [ns]
    - peak_spacing (between the nodes' humps, in the order of arrival; calculated: needs a line rate); mean
      calculated [ns]
    - shift of one_way_delay or response_latency against "to=unicast", "receivers=0"; mean p50 [ns]
- background:
    - rtt (request-response), one_way_delay at each load and via; as above [ns]
    - shift against "load=0.0" (the device and the CPU), against "load_via=beside" (the device alone); mean p50 [ns]
    - modes (humps of the distribution); count [1]

"at_least" in place of "mean": the tester's own clean rate is within 10 %, so this is its limit and not the device's.

Samples (analysis/samples/*.parquet); all but the last three carry the cell's factors (`factors.Factors`) too:

- trials (all): block, purpose, device, cell, round, visit, flow, port, elapsed_s, intended_pps, offered_pps,
  received_pps, sent, first, lost, corrupted, own_drops, duplicated, reordered, late, delay_mean_ns, delay_p50_ns,
  growth
- delay_quantiles (all): device, cell, port, node, measure, q (share above, the lost included), delay_ns; null:
  infinite
- delay_histograms (all): device, cell, port, node, measure, low_ns, high_ns, share (of the sent)
- delay_timeline (all): device, cell, block, round, visit, elapsed_s, delay_ns; thinned, the slowest kept
- inter_arrival_quantiles (all): device, cell, port, q, interval_ns
- departure_errors (all): device, q, error_ns
- delay_by_interval (one-way): device, cell, statistic, estimate_ns, ci_low_ns, ci_high_ns, bounded (of one-way)
- knees (one-way): device, cell, statistic, estimate_ns, ci_low_ns, ci_high_ns (min_frame_interval)
- rates (throughput, loss, fan-in): device, cell, offered_pps, received_pps, received_low_pps, received_high_pps,
  user_bps, throughput_bps, loss_ratio, loss_low, loss_high, inter_frame_ns, inter_frame_low_ns, inter_frame_high_ns,
  calculated_ns, tester_limited
- loss_runs (loss, throughput): device, cell, port, run ("loss", "gap"), low, high (lengths), count
- widths (fan-in): device, cell, statistic, estimate_ns, ci_low_ns, ci_high_ns
- shares (fan-in): device, cell, block, round, flow, received_pps
- peaks (multicast): device, cell, node, rank, estimate_ns, ci_low_ns, ci_high_ns (a node's hump)
- shifts (background, multicast): device, cell, port, node, against, quantity, statistic, estimate_ns, ci_low_ns,
  ci_high_ns
- modes (background): device, cell, measure, mode_ns
- pairs (all): device, reference, cell, round, latency_ns
- rate_lines (throughput): device, schedule, to, frame_bytes, estimate_ns, ci_low_ns, ci_high_ns (the fitted
  inter-frame time)

`measure` is "actual" (from the best stamp of departure), "intended" (from the schedule), "round-trip" (request and
response) or "response" (multicast request, unicast answers).
"""
