// The client's types lead to modules that Node runs too; there, `performance` has a member that browsers lack.
interface Performance {
  eventLoopUtilization: import('node:perf_hooks').Performance['eventLoopUtilization'];
}
