// Options that choose the engine for pods and workers of endpoints, restrict pods, and set the variables of workers.

import { type Containment, USUAL_CAPABILITIES } from '../../platform/defaults.ts';
import {
  checkKubernetesLogin,
  type KubernetesChoice,
  listKubernetesDevices,
  readKubernetesSettings,
} from '../../platform/files/kubernetes-file.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { inheritEnvironment, readVariable } from '../config.ts';
import {
  choice,
  defineGroup,
  flag,
  integer,
  list,
  type OptionValues,
  text,
  UsageError,
} from '../options.ts';
import { member } from './platform-option.ts';

export const engineOptions = defineGroup('Pods and workers', {
  engine: choice({
    choices: ['process', 'docker', 'kubernetes', 'none'],
    default: 'process',
    sets: [member('compute.engine')],
    help: 'engine that runs pods and the workers of endpoints; process: processes of this machine; kubernetes: Pods of a cluster; none: no pods',
  }),
  catalog: text({
    placeholder: 'FILE',
    sets: [member('compute.catalogFile')],
    help: 'JSON file of GPU types, CPU flavors and prices; default: the devices of this machine at no cost',
  }),
  secretsKeyFile: text({
    placeholder: 'FILE',
    sets: [member('secretsKeyFile')],
    help: 'file of keys that encrypt the secrets of registries and the variables of templates and pods, one per line, the current one first; make one with `openssl rand -base64 32`; default: none, registries cannot be created and variables are stored in the clear',
  }),
  dockerHost: text({
    placeholder: 'URL',
    env: 'DOCKER_HOST',
    sets: [member('compute.dockerHost')],
    help: '--engine docker: address of the engine, unix:///path or tcp://host:port; default: the local socket',
  }),
  trustUsers: flag({
    sets: [member('compute.trustUsers')],
    help: "--engine process: let every user run pods, not only the user owner; all pods share one UID and can read each other's files",
  }),
  trustKeys: flag({
    sets: [member('compute.trustKeys')],
    help:
      '--engine process: let keys without the scope admin use pods:write and endpoints:write; without --pod-user ' +
      "their pods run as the platform's user and can read every key",
  }),
  podUser: text({
    placeholder: 'USER',
    sets: [member('compute.podUser')],
    help: '--engine process: system user of pods if the platform runs as root: a name or UID[:GID]; default: the user "nobody" if that user can reach --data and this program, else root',
  }),
  workerEnv: list({
    sets: [member('compute.workerEnvironment', readWorkerEnvironment)],
    placeholder: 'NAME[=VALUE]',
    help: '--engine process: environment variable for the workers of endpoints; without =VALUE, copied from the platform; workers always get its PATH and NODE_EXTRA_CA_CERTS',
  }),
  workerUrl: text({
    placeholder: 'URL',
    sets: [member('compute.workerUrl')],
    help: 'URL at which the workers of endpoints reach the platform; --engine kubernetes needs it; default: the printed URL; in containers http://host.docker.internal:<port>, unless --host is another address of this machine',
  }),
  workerListener: choice({
    sets: [member('compute.workerListener')],
    choices: ['bridge', 'none'],
    default: 'bridge',
    section: 'advanced',
    help: "--engine docker with a loopback --host: also listen on the address of Docker's bridge, which containers on this machine call; none: do not",
  }),
});

const NAME = /^(?:CAP_)?([A-Z][A-Z_]*)$/;

export const containmentOptions = defineGroup('Containers', {
  containerPids: integer({
    sets: [member('compute.containment.pids')],
    min: 0,
    max: 4_194_304,
    default: 4_096,
    section: 'advanced',
    help: '--engine docker or process: maximum number of processes and threads of one pod; 0: no limit',
  }),
  containerCapabilities: text({
    sets: [member('compute.containment.capabilities', readCapabilities)],
    placeholder: 'LIST',
    default: 'usual',
    section: 'advanced',
    help: "--engine docker: Linux capabilities of containers, for example usual,SYS_CHROOT; usual: those that most images need; engine: the engine's defaults; none: no capabilities",
  }),
  containerNewPrivileges: flag({
    sets: [member('compute.containment.newPrivileges', (isOn) => (isOn ? 'allowed' : 'forbidden'))],
    section: 'advanced',
    help: '--engine docker: let programs in containers gain privileges, as sudo does; default: not allowed',
  }),
  containerGpuMemory: integer({
    sets: [member('compute.containment.memoryPerGpuGb', (gb: number | undefined) => gb ?? null)],
    min: 0,
    max: 65_536,
    unit: 'GB',
    section: 'advanced',
    help: "--engine docker: memory limit of a pod for each of its GPUs; 0: no limit; default: 90 % of the machine's memory divided by its GPUs",
  }),
});

function readCapabilities(given: string): Containment['capabilities'] {
  if (given === 'engine') return 'engine';
  if (given === 'none' || given === '') return [];
  return given.split(',').flatMap((word) => {
    if (word.trim() === 'usual') return [...USUAL_CAPABILITIES];
    const [, name] = NAME.exec(word.trim().toUpperCase()) ?? [];
    if (name !== undefined) return name;
    throw new UsageError(
      `--container-capabilities: ${word}: unknown capability; write a name such as SYS_CHROOT`,
    );
  });
}

export const kubernetesOptions = defineGroup('Kubernetes', {
  kubeconfig: text({
    placeholder: 'PATH',
    env: 'KUBECONFIG',
    sets: ['compute.kubernetes'],
    help: '--engine kubernetes: kubeconfig file, such as ~/.kube/config; default: the service account of the Pod in which the platform runs',
  }),
  kubeNamespace: text({
    placeholder: 'NAME',
    help: "--engine kubernetes: namespace of the pods; default: that of the kubeconfig's context, or of the platform's own Pod",
  }),
  kubeSettings: text({
    placeholder: 'PATH',
    sets: ['compute.kubernetes.settings'],
    help: '--engine kubernetes: JSON file with GPUs, node selectors, tolerations, storage classes and labels; docs/kubernetes.md lists them',
  }),
});

/** Undefined for another engine. @throws PlatformOptionError */
export function readKubernetes(
  values: { engine: string } & OptionValues<typeof kubernetesOptions>,
): (KubernetesChoice & { devices: Device[] }) | undefined {
  if (values.engine !== 'kubernetes') return undefined;
  const settings = readKubernetesSettings(values.kubeSettings);
  const devices = listKubernetesDevices(settings);
  const { kubeconfig, kubeNamespace: namespace } = values;
  checkKubernetesLogin(kubeconfig);
  return { kubeconfig, namespace, environment: inheritEnvironment({}), settings, devices };
}

/** With PATH, workers find Python and npm; with NODE_EXTRA_CA_CERTS, npm trusts the same registries as here. */
const INHERITED = ['PATH', 'NODE_EXTRA_CA_CERTS'];

/** @throws UsageError */
function readWorkerEnvironment(given: readonly string[]): Record<string, string> {
  const variables = given.map((each) => {
    const [, name = '', value] = /^([A-Za-z_]\w*)(?:=(.*))?$/s.exec(each) ?? [];
    if (name === '') {
      throw new UsageError(`--worker-env: must be NAME or NAME=VALUE, got ${JSON.stringify(each)}`);
    }
    if (name.startsWith('MILLRACE_')) {
      throw new UsageError(
        `--worker-env: ${name} belongs to Millrace; set it in the endpoint's template`,
      );
    }
    const own = value ?? readVariable(name);
    if (own === undefined)
      throw new UsageError(`--worker-env: ${name} is not set; give ${name}=VALUE`);
    return [name, own] as const;
  });
  const inherited = INHERITED.flatMap((name) => {
    const value = readVariable(name);
    return value === undefined ? [] : [[name, value] as const];
  });
  return Object.fromEntries([...inherited, ...variables]);
}
