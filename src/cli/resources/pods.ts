// `millrace pods`: pods from the command line.
import type { z } from 'zod';
import type { ApiCaller } from '../../client/api-caller.ts';
import { connectPods, type Pods } from '../../client/pods.ts';
import { connectResources } from '../../client/resources.ts';
import type { PodRecord, podList } from '../../wire/resources/pod.ts';
import { resourceRoutes } from '../../wire/routes.ts';
import type { Command } from '../command.ts';
import { flag, integer, type OptionValues, text, UsageError } from '../options.ts';
import { connectCaller } from './client-options.ts';
import { containerOptions, readContainerFlags } from './container-flags.ts';
import {
  createResourceActions,
  describeActions,
  type ResourceAction,
  type ResourceActions,
  type ResourceKind,
  resourceOptions,
  runAction,
} from './resource-command.ts';

const options = {
  ...resourceOptions,
  ...containerOptions,
  template: text({ placeholder: 'ID', help: 'create: what is not given here comes from it' }),
  gpu: text({ placeholder: 'ID', help: 'create: GPU type of the catalogue' }),
  gpuCount: integer({ min: 1, max: 64, default: 1, help: 'create: how many of them' }),
  cpu: text({ placeholder: 'ID', help: 'create: CPU flavour of the catalogue, without a GPU' }),
  vcpus: integer({ min: 2, max: 1_024, default: 2, help: 'create: with --cpu, a power of two' }),
  memory: integer({
    ...{ min: 1, max: 65_536, default: 4, placeholder: 'GB' },
    help: 'create: with --cpu',
  }),
  locked: flag({ help: 'create, update: cannot be stopped, restarted or terminated' }),
  unlocked: flag({ help: 'update: can be again' }),
  bytes: integer({
    ...{ min: 1, max: 1_048_576, default: 65_536, placeholder: 'N' },
    help: 'logs: at most so many, from the end',
  }),
} as const;

type Values = OptionValues<typeof options>;

const kind: ResourceKind<Values, PodRecord> = {
  plural: 'pods',
  singular: 'pod',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    STATUS: ({ status }) => status,
    ON: describeCompute,
    'USD/H': ({ cost }) => String(cost),
    ENDPOINT: ({ endpointId }) => endpointId ?? '-',
    REASON: ({ reason }) => reason ?? '',
  },
  connect: (caller: ApiCaller) =>
    connectResources<z.infer<typeof podList>, PodRecord, object, object>({
      ...{ caller, path: resourceRoutes.pods, pathOf: resourceRoutes.pod },
      pick: ({ pods }) => pods,
    }),
  readFlags,
};

const actions: ResourceActions<Values> = {
  ...createResourceActions(kind),
  start: createAct('starts a pod that was stopped', (pods, id) => pods.start(id)),
  stop: createAct('stops a pod; its disk stays', (pods, id) => pods.stop(id)),
  restart: createAct('makes its container anew: the disk is wiped', (pods, id) => pods.restart(id)),
  terminate: {
    ...{ takes: 'id', help: 'ends a pod for good' },
    act: async ({ caller, id, values }) => {
      await connectPods(caller).terminate(id);
      return values.json ? JSON.stringify({ id, terminated: true }) : `${id}  terminated`;
    },
  },
  logs: {
    ...{ takes: 'id', help: 'the end of what it has printed' },
    act: async ({ caller, id, values }) => {
      const log = await connectPods(caller).log(id, { maxBytes: values.bytes });
      return values.json ? JSON.stringify({ id, log }) : log.replace(/\n$/, '');
    },
  },
};

const { exitCodes, lines, positionals } = describeActions(actions, 'pod');

export const podsCommand: Command = {
  name: 'millrace pods',
  summary: 'make, list, change, start, stop and end pods',
  description: [
    'Talks to a running platform. Fields without a flag of their own, such as mounts, go in --file.',
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
  if (locked && unlocked) throw new UsageError('--locked and --unlocked do not go together');
  return {
    ...readContainerFlags(values),
    template,
    gpu: gpu === undefined ? undefined : { id: gpu, count: gpuCount },
    cpu: cpu === undefined ? undefined : { id: cpu, vcpuCount: vcpus, memory },
    locked: locked ? true : unlocked ? false : undefined,
  };
}
