// The calls between nodes about pods, and the machines that they run on.
import type { NodeCallHandlers } from '../nodes/node-calls.ts';

export type MachineCallHandlers = Pick<
  NodeCallHandlers,
  'describe' | 'machine' | 'work' | 'load' | 'scaling' | 'drain' | 'endPod' | 'use'
>;

/** For handlers that do not exist yet when other nodes begin to call. */
export function forwardMachineCalls(find: () => MachineCallHandlers): MachineCallHandlers {
  return {
    describe: (body) => find().describe(body),
    machine: (body) => find().machine(body),
    work: (body) => find().work(body),
    load: (body) => find().load(body),
    scaling: (body) => find().scaling(body),
    drain: (body) => find().drain(body),
    endPod: (body) => find().endPod(body),
    use: (body) => find().use(body),
  };
}
