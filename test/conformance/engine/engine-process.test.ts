import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '../../../src/base/log.ts';
import {
  type CgroupHome,
  findCgroupHome,
  NO_CGROUPS,
} from '../../../src/engine/process/cgroups.ts';
import {
  ProcessEngine,
  type ProcessEngineOptions,
} from '../../../src/engine/process/process-engine.ts';
import type { Device } from '../../../src/wire/link/worker-link.ts';
import { describeEngine } from './engine.ts';

const devices = ['GPU-a', 'GPU-b', 'GPU-c'].map(
  (uuid, index): Device => ({ kind: 'gpu', index, uuid, name: 'pretended', memoryBytes: 1e9 }),
);

/** Only root can run pods as another user. */
const podUser =
  process.geteuid?.() === 0 ? { uid: 65_534, gid: 65_534, name: 'nobody' } : undefined;

function describeProcesses(
  name: string,
  { cgroups, podUser }: Pick<ProcessEngineOptions, 'podUser'> & { cgroups: CgroupHome },
): void {
  describeEngine({
    name,
    image: 'none',
    node: process.execPath,
    mountRoot: '.',
    addedVariables: [
      'PATH',
      'HOME',
      'TMPDIR',
      'LANG',
      'MILLRACE_RUN',
      'CUDA_VISIBLE_DEVICES',
      'NVIDIA_VISIBLE_DEVICES',
      'HIP_VISIBLE_DEVICES',
    ],
    gpus: devices.map(({ uuid }) => uuid),
    gpusAtStart: true,
    limitsMemory: cgroups.memory !== null,
    async open() {
      const folder = await mkdtemp(join(tmpdir(), 'millrace-engine-'));
      // The pods' user can reach the platform's folder, as in a real installation.
      await chmod(folder, 0o711);
      const terms = { folder, log: silentLog, devices, cgroups, podUser };
      return {
        open: () => new ProcessEngine(terms),
        close: () => rm(folder, { recursive: true, force: true }),
      };
    },
  });
}

const found = findCgroupHome();

describeProcesses('of processes without control groups', { cgroups: NO_CGROUPS });
if (found.tracking !== null || podUser) {
  const user = podUser ? ' as another user' : '';
  describeProcesses(`of processes in control groups${user}`, { cgroups: found, podUser });
}
