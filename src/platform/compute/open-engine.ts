// Opens the engine that runs pods, with the facts about this machine that it needs.
import { join } from 'node:path';
import type { Log } from '../../base/log.ts';
import { launcherPath } from '../../base/package-info.ts';
import type { EngineKind } from '../../control/endpoints/deployment-rules.ts';
import type { Containment } from '../../engine/docker/containment.ts';
import type { ContainerStats, Engine } from '../../engine/engine.ts';
import type { PodUser } from '../../engine/process/pod-user.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { readEngineName } from '../files/engine-name.ts';
import { type KubernetesChoice, readKubernetesSettings } from '../files/kubernetes-file.ts';
import { describeError, PlatformOptionError } from '../option-error.ts';
import { locateCode } from './pod-user-choice.ts';

export interface EngineOptions {
  kind: EngineKind;
  dockerHost?: string | undefined;
  kubernetes?: KubernetesChoice | undefined;
  dataFolder: string;
  /** Devices for pods. */
  devices: readonly Device[];
  /** Measures GPUs by UUID. */
  measureGpus: (uuids: readonly string[]) => Promise<ContainerStats['gpus']>;
  podUser?: PodUser | undefined;
  /** For the engine `docker`; `pids` also for `process`. */
  containment?: Containment | undefined;
  /** Engine `process`: variables of workers. */
  workerEnvironment?: Readonly<Record<string, string>> | undefined;
  /** For the engine `kubernetes`: see KubernetesEngineOptions. */
  openFence?: (() => () => void) | undefined;
  log: Log;
}

/** Loads only the requested engine. @throws PlatformOptionError */
export async function openEngine(options: EngineOptions): Promise<Engine | undefined> {
  const { containment, dataFolder, devices, kind, log, measureGpus, podUser } = options;
  if (kind === 'none') return undefined;
  if (kind === 'docker') return openDocker(options);
  if (kind === 'kubernetes') return openKubernetes(options);
  const { ProcessEngine } = await import('../../engine/process/process-engine.ts');
  return new ProcessEngine({
    folder: join(dataFolder, 'pods'),
    log,
    devices,
    measureGpus,
    podUser,
    maxProcesses: containment?.pids,
    runHandler: {
      execPath: process.execPath,
      args: [launcherPath, 'worker'],
      // Node's compile cache: with a cache in a temporary folder of its own, a worker's start takes
      // twice as long.
      env: { ...options.workerEnvironment, NODE_COMPILE_CACHE: locateCode(dataFolder) },
    },
  });
}

/** The API server is first called when pods are listed. */
async function openKubernetes(options: EngineOptions): Promise<Engine> {
  const { dataFolder, kubernetes, log, openFence } = options;
  const { KubernetesEngine } = await import('../../engine/kubernetes/kubernetes-engine.ts');
  const { environment = {}, kubeconfig, namespace } = kubernetes ?? {};
  const { settings = readKubernetesSettings(undefined) } = kubernetes ?? {};
  const platform = settings.platform ?? readEngineName(dataFolder);
  const access = { kubeconfig, namespace, environment };
  return new KubernetesEngine({ platform, access, settings, openFence, log });
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
    throw new PlatformOptionError('invalid', 'compute.dockerHost', describeError(error));
  }
}
