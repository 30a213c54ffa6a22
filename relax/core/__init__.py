"""How a run is driven. By what the modules are for:

- what is done: `registry` (roles), `rows` (samples, batches, versions of the weights), `units` (of work), `schedule`;
- who does it: `controller` (the driver), `execution` (a schedule, as soon as it can be done), `processes` and
  `role_process` (the roles), `deadline`;
- what is looked at before: `preflight`, `folders` (their room), `own_folders` (that no other run has them);
- what is kept: `checkpoint`, `resume`, `going_on` (what is left to do), `random_states`, `trace`;
- what is told of it: `record`, `counts`, `fingerprint`, `clock`, `step_timer`, `means`, `one_line`;
- what is left afterwards, namely nothing: `cluster`, `guard`.
"""
