// Who a worker process is and where its reports wait, by its options; and what others left beside that.
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { MemoryOutbox } from '../../worker/outbox/outbox.ts';
import type { WorkerFolder } from '../../worker/outbox/state-folder.ts';
import { CommandError } from '../command.ts';
import { openLink } from './platform-link.ts';
import type { WorkerFlags } from './worker-flags.ts';

/** Who this worker is, and where its reports wait. @throws CommandError if it may not be that one */
export async function openFolder(values: WorkerFlags, log: Log): Promise<WorkerFolder> {
  const { stateDir, stateOwner, workerId, incarnation, endpoint: endpointId } = values;
  const { podId = stateOwner } = values;
  if (stateDir === undefined) {
    log[values.underDev ? 'debug' : 'info'](
      'outbox is in memory only, undelivered outcomes are lost when the process exits; set --state-dir to keep them',
    );
    return {
      workerId: workerId ?? nameWorker(),
      incarnation: incarnation ?? Date.now(),
      outbox: new MemoryOutbox(),
      close: async () => {},
    };
  }
  const { openWorkerFolder, StateFolderError } = await import(
    '../../worker/outbox/state-folder.ts'
  );
  const emptyFolder = stateOwner === undefined ? 'keep' : 'remove';
  const identity = {
    stateDir,
    workerId,
    incarnation,
    endpointId,
    podId,
    nameWorker,
    emptyFolder,
  } as const;
  try {
    return await openWorkerFolder({ ...identity, clock: systemClock, log });
  } catch (error) {
    throw error instanceof StateFolderError
      ? new CommandError(`--state-dir: ${error.message}`)
      : error;
  }
}

interface LeftFoldersStart {
  values: WorkerFlags;
  workerId: string;
  version: string;
  devices: readonly Device[];
  log: Log;
}

/**
 * Delivers what workers left that do not run any more. Not on RunPod: there a pod keeps its id, and a
 * second link under another one would ping for this pod without its jobs.
 */
export async function startLeftFolders({ values, ...rest }: LeftFoldersStart) {
  const { stateDir, stateOwner, endpoint: endpointId, url } = values;
  if (stateDir === undefined || url === '') return undefined;
  const { LeftFolders } = await import('../../worker/outbox/abandoned-folders.ts');
  const { log } = rest;
  const terms = {
    stateDir,
    podId: values.podId ?? stateOwner,
    usedBy: stateOwner === undefined ? 'everybody' : 'pod',
    endpointId,
    clock: systemClock,
    openLink: () => openLink(values, log),
  } as const;
  const left = new LeftFolders({ ...rest, ...terms });
  left.start();
  return left;
}

/**
 * The host's name, as far as it may stand in a worker's id, and a random part: containers may share
 * both host name and process id, and two workers of one id would drive each other out.
 */
function nameWorker(): string {
  const host = hostname()
    .replaceAll(/[^A-Za-z0-9._-]/g, '-')
    .replace(/^[^A-Za-z0-9]+/, '')
    .slice(0, 100);
  return `${host || 'worker'}-${randomBytes(4).toString('hex')}`;
}
