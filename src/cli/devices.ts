// The devices that a worker says it has: the host's processors, as one.
import { cpus, totalmem } from 'node:os';
import type { Device } from '../wire/worker-link.ts';

export function describeHost(): Device[] {
  const processors = cpus();
  const model = processors[0]?.model.trim() || process.arch;
  const name = `${processors.length} × ${model}`;
  return [{ kind: 'cpu', index: 0, uuid: 'cpu-0', name, memoryBytes: totalmem() }];
}
