// What runs pods, by the options of `millrace serve`: which engine, and what it is told of this machine.
import { join } from 'node:path';
import type { Log } from '../../base/log.ts';
import type { Containment } from '../../engine/docker/containment.ts';
import type { ContainerStats, Engine } from '../../engine/engine.ts';
import type { PodUser } from '../../engine/process/pod-user.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { containmentOptions } from '../options/containment-options.ts';
import { locateCode, PROGRAM, podUserOption } from '../options/pod-user.ts';
import { choice, flag, text, UsageError } from '../options.ts';
import { readEngineName } from './engine-name.ts';

export const engineOptions = {
  engine: choice({
    choices: ['process', 'docker', 'none'],
    default: 'process',
    env: 'MILLRACE_ENGINE',
    help: 'engine that runs pods and the workers of endpoints: process (processes of this machine), docker or none',
  }),
  dockerHost: text({
    placeholder: 'URL',
    env: 'DOCKER_HOST',
    help: '--engine docker: address of the engine, unix:///path or tcp://host:port; default: the local socket',
  }),
  trustUsers: flag({
    env: 'MILLRACE_TRUST_USERS',
    help: '--engine process: let users other than the owner run pods too; all pods run as the same system user',
  }),
  trustKeys: flag({
    env: 'MILLRACE_TRUST_KEYS',
    help:
      '--engine process: let keys without admin use pods:write and endpoints:write, although pods run as ' +
      "the platform's user and can read every key",
  }),
  podUser: podUserOption,
  ...containmentOptions,
  workerUrl: text({
    placeholder: 'URL',
    env: 'MILLRACE_WORKER_URL',
    help: 'URL at which the workers of endpoints reach the platform; default: the printed URL',
  }),
} as const;

export type EngineKind = 'process' | 'docker' | 'none';

export interface EngineOptions {
  kind: EngineKind;
  dockerHost: string | undefined;
  dataFolder: string;
  /** That pods may be given. */
  devices: readonly Device[];
  /** Of GPUs, by UUID. */
  measureGpus: (uuids: readonly string[]) => Promise<ContainerStats['gpus']>;
  podUser?: PodUser | undefined;
  /** Of --engine docker. */
  containment?: Containment | undefined;
  log: Log;
}

/** Loads only what is asked for. @throws UsageError, CommandError */
export async function openEngine(options: EngineOptions): Promise<Engine | undefined> {
  const { dataFolder, devices, kind, log, measureGpus, podUser } = options;
  if (kind === 'none') return undefined;
  if (kind === 'docker') return openDocker(options);
  const { ProcessEngine } = await import('../../engine/process/process-engine.ts');
  return new ProcessEngine({
    folder: join(dataFolder, 'pods'),
    log,
    devices,
    measureGpus,
    podUser,
    runHandler: {
      execPath: process.execPath,
      args: [PROGRAM, 'worker'],
      // Node's compiled code, which a worker would otherwise look for in a temporary folder of its own:
      // without it a start takes twice as long.
      env: { NODE_COMPILE_CACHE: locateCode(dataFolder) },
    },
  });
}

async function openDocker(options: EngineOptions): Promise<Engine> {
  const { containment, dataFolder, devices, dockerHost: host, log, measureGpus } = options;
  const { DockerEngine } = await import('../../engine/docker/docker-engine.ts');
  const platform = readEngineName(dataFolder);
  try {
    const machineGpus = devices.filter(({ kind }) => kind === 'gpu').length;
    return new DockerEngine({
      ...{ platform, log, measureGpus, machineGpus },
      ...(host !== undefined && { host }),
      ...(containment && { containment }),
    });
  } catch (error) {
    throw new UsageError(`--docker-host: ${error instanceof Error ? error.message : error}`);
  }
}
