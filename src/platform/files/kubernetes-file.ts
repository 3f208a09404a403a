// Reads what the operator chose for pods on Kubernetes: the way to the API server, and the file of settings.
import { accessSync, constants, readFileSync } from 'node:fs';
import {
  type KubernetesSettings,
  kubernetesSettings,
  listGpuPlaces,
} from '../../engine/kubernetes/settings.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { describeIssues } from '../../wire/problem.ts';
import { describeError, PlatformOptionError } from '../option-error.ts';

/** How the platform reaches its cluster, and what its pods get there. */
export interface KubernetesChoice {
  /** Path of a kubeconfig file. Default: the service account of the Pod in which the platform runs. */
  kubeconfig?: string | undefined;
  /** Default: the namespace of the kubeconfig's context, or of the platform's own Pod. */
  namespace?: string | undefined;
  /** The variables of the Pod in which the platform runs, and of programs that print credentials. Default: none. */
  environment?: Readonly<Record<string, string | undefined>> | undefined;
  /** Default: the defaults of each setting. */
  settings?: KubernetesSettings | undefined;
}

/** `path`: a JSON file; undefined: only defaults. @throws PlatformOptionError that names the file and each wrong path in it */
export function readKubernetesSettings(path: string | undefined): KubernetesSettings {
  const checked = kubernetesSettings.safeParse(path === undefined ? {} : parseFile(path));
  if (checked.success) return checked.data;
  throw refuse(`${path}: ${describeIssues(checked.error, 'the file').join('; ')}`);
}

const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/**
 * Without a login the platform would start, and retry for ever. `token`: the file of the service account.
 * @throws PlatformOptionError if the file of the login cannot be read
 */
export function checkKubernetesLogin(
  kubeconfig: string | undefined,
  token: string = SERVICE_ACCOUNT,
): void {
  try {
    accessSync(kubeconfig ?? token, constants.R_OK);
  } catch (error) {
    const problem =
      kubeconfig === undefined
        ? 'is required outside of a cluster; give the path of a kubeconfig file, such as ~/.kube/config'
        : describeError(error);
    throw new PlatformOptionError('invalid', 'compute.kubernetes', problem);
  }
}

/** The GPUs that the cluster has for the platform. The cluster chooses the devices, so these only count them. */
export function listKubernetesDevices(settings: KubernetesSettings): Device[] {
  return listGpuPlaces(settings);
}

function parseFile(path: string): unknown {
  let content: string;
  try {
    content = readFileSync(path, 'utf8');
  } catch (error) {
    throw refuse(describeError(error));
  }
  try {
    return JSON.parse(content);
  } catch (error) {
    throw refuse(`${path} is not JSON: ${describeError(error)}`);
  }
}

function refuse(problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', 'compute.kubernetes.settings', problem);
}
