// `millrace pods`: pods from the command line.
import { connectPods, type Pods } from '../../client/pods.ts';
import type { PodRecord } from '../../wire/resources/pod.ts';
import type { Command } from '../command.ts';
import { flag, integer, type OptionValues, text, UsageError } from '../options.ts';
import { connectCaller } from './client-options.ts';
import { containerOptions, readContainerFlags } from './container-flags.ts';
import {
  createResourceActions,
  describeActions,
  type ResourceAction,
  type ResourceActions,
  resourceOptions,
  runAction,
} from './resource-command.ts';

const options = {
  ...resourceOptions,
  ...containerOptions,
  template: text({
    placeholder: 'ID',
    help: 'create: template that fills in the fields that you leave out',
  }),
  gpu: text({ placeholder: 'ID', help: 'create: GPU type, from `millrace catalog gpus`' }),
  gpuCount: integer({ min: 1, max: 64, default: 1, help: 'create: number of GPUs' }),
  cpu: text({ placeholder: 'ID', help: 'create: CPU flavour, from `millrace catalog cpus`' }),
  vcpus: integer({
    min: 2,
    max: 1_024,
    default: 2,
    help: 'create, with --cpu: vCPUs, a power of two',
  }),
  memory: integer({
    ...{ min: 1, max: 65_536, default: 4, placeholder: 'GB' },
    help: 'create, with --cpu: memory, GB',
  }),
  locked: flag({ help: 'create, update: refuse to stop, restart or terminate the pod' }),
  unlocked: flag({ help: 'update: undo --locked' }),
  bytes: integer({
    ...{ min: 1, max: 1_048_576, default: 65_536, placeholder: 'N' },
    help: 'logs: print at most this many bytes from the end',
  }),
} as const;

type Values = OptionValues<typeof options>;

const verbs = createResourceActions<Values, 'pods'>({
  name: 'pods',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    STATUS: ({ status }) => status,
    ON: describeCompute,
    'USD/H': ({ cost }) => String(cost),
    ENDPOINT: ({ endpointId }) => endpointId ?? '-',
    REASON: ({ reason }) => reason ?? '',
  },
  readFlags,
});

const actions: ResourceActions<Values> = {
  ...verbs,
  start: createAct('start a stopped pod', (pods, id) => pods.start(id)),
  stop: createAct('stop a pod and keep its disk', (pods, id) => pods.stop(id)),
  restart: createAct('recreate the container; its disk is wiped, mounts are kept', (pods, id) =>
    pods.restart(id),
  ),
  terminate: {
    ...{ takes: 'id', help: 'remove a pod permanently' },
    act: async ({ caller, id, values }) => {
      await connectPods(caller).terminate(id);
      return values.json ? JSON.stringify({ id, terminated: true }) : `${id}  terminated`;
    },
  },
  logs: {
    ...{ takes: 'id', help: "print the end of the pod's output" },
    act: async ({ caller, id, values }) => {
      const log = await connectPods(caller).log(id, { maxBytes: values.bytes });
      return values.json ? JSON.stringify({ id, log }) : log.replace(/\n$/, '');
    },
  },
};

const { exitCodes, lines, positionals } = describeActions(actions, 'pod');

export const podsCommand: Command = {
  name: 'millrace pods',
  summary: 'create, list, update, start, stop and terminate pods',
  description: [
    'Calls a running platform. Give fields that have no flag, such as mounts, in --file.',
    ...lines,
  ],
  positionals,
  options,
  examples: [
    'millrace pods create --name notes --image busybox --args "sleep 600" --cpu cpu',
    'millrace pods create --file pod.json --name second --json | jq -r .id',
    'millrace pods restart pod_01912f4e-…',
    'millrace pods logs pod_01912f4e-… --bytes 2000',
  ],
  exitCodes,
  run: (args) => runAction({ options, actions, connect: connectCaller, args }),
};

function createAct(
  help: string,
  act: (pods: Pods, id: string) => Promise<PodRecord>,
): ResourceAction<Values> {
  return {
    takes: 'id',
    help,
    act: async ({ caller, id, values }) => {
      const pod = await act(connectPods(caller), id);
      return values.json ? JSON.stringify(pod) : `${pod.id}  ${pod.status}`;
    },
  };
}

function describeCompute({ cpu, gpu }: PodRecord): string {
  if (gpu) return `${gpu.count} x ${gpu.id}`;
  return cpu ? `${cpu.vcpuCount} vCPU, ${cpu.memory} GB` : '-';
}

function readFlags(values: Values): Record<string, unknown> {
  const { cpu, gpu, gpuCount, locked, memory, template, unlocked, vcpus } = values;
  if (locked && unlocked)
    throw new UsageError('--locked and --unlocked exclude each other; give one');
  return {
    ...readContainerFlags(values),
    template,
    gpu: gpu === undefined ? undefined : { id: gpu, count: gpuCount },
    cpu: cpu === undefined ? undefined : { id: cpu, vcpuCount: vcpus, memory },
    locked: locked ? true : unlocked ? false : undefined,
  };
}
