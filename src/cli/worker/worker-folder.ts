// Determines a worker's ID and the folder of its outbox, and delivers the outcomes in abandoned
// folders beside it.
import { hostname } from 'node:os';
import { systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { createRandomId } from '../../base/random-id.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { MemoryOutbox } from '../../worker/outbox/outbox.ts';
import type { WorkerFolder } from '../../worker/outbox/state-folder.ts';
import { CommandError } from '../command.ts';
import { openLink } from './platform-link.ts';
import type { WorkerFlags } from './worker-flags.ts';

/** Returns the worker's identity and outbox. @throws CommandError if the identity is in use */
export async function openFolder(values: WorkerFlags, log: Log): Promise<WorkerFolder> {
  const { stateDir, stateOwner, workerId, incarnation, endpoint: endpointId } = values;
  const { podId = stateOwner } = values;
  if (stateDir === undefined) {
    log[values.underDev ? 'debug' : 'info'](
      'outbox is in memory only, undelivered outcomes are lost when the process exits; set --state-dir to keep them',
    );
    return {
      workerId: workerId ?? createWorkerId(),
      incarnation: incarnation ?? Date.now(),
      outbox: new MemoryOutbox(),
      close: async () => {},
    };
  }
  const { openWorkerFolder, StateFolderError } = await import(
    '../../worker/outbox/state-folder.ts'
  );
  const identity = {
    stateDir,
    workerId,
    incarnation,
    endpointId,
    podId,
    createWorkerId,
    removeWhenDelivered: stateOwner !== undefined,
  };
  try {
    return await openWorkerFolder({ ...identity, clock: systemClock, log });
  } catch (error) {
    throw error instanceof StateFolderError
      ? new CommandError(`--state-dir: ${error.message}`)
      : error;
  }
}

/** Digits of the random part of a worker's ID. */
const ID_DIGITS = 8;

interface AbandonedFoldersStart {
  values: WorkerFlags;
  workerId: string;
  version: string;
  devices: readonly Device[];
  log: Log;
}

/**
 * Delivers outcomes of workers that no longer run. Not on RunPod, where a pod keeps its ID: a
 * second link with another ID would send pings for this pod that do not name its jobs.
 */
export async function startAbandonedFolders({ values, ...rest }: AbandonedFoldersStart) {
  const { stateDir, stateOwner, endpoint: endpointId, url } = values;
  if (stateDir === undefined || url === '') return undefined;
  const { AbandonedFolders } = await import('../../worker/outbox/abandoned-folders.ts');
  const { log } = rest;
  const terms = {
    stateDir,
    podId: values.podId ?? stateOwner,
    isExclusiveToPod: stateOwner !== undefined,
    endpointId,
    clock: systemClock,
    openLink: () => openLink(values, log),
  } as const;
  const abandoned = new AbandonedFolders({ ...rest, ...terms });
  abandoned.start();
  return abandoned;
}

/**
 * Returns the host's name, reduced to valid characters, and a random part. Containers may share
 * host name and process ID, and two workers with one ID would end each other's sessions.
 */
function createWorkerId(): string {
  const host = hostname()
    .replaceAll(/[^A-Za-z0-9._-]/g, '-')
    .replace(/^[^A-Za-z0-9]+/, '')
    .slice(0, 100);
  return `${host || 'worker'}-${createRandomId().slice(0, ID_DIGITS)}`;
}
