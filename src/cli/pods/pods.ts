// `millrace pods`: manages pods.

import { connectPods, type PodsClient } from '../../client/platform-client.ts';
import type { PodRecord } from '../../wire/resources/pod.ts';
import type { CommandGroup, Verb } from '../command.ts';
import { flag, integer, type OptionValues, text, UsageError } from '../options.ts';
import { confirm, yesOption } from '../prompt.ts';
import { defineApiVerb } from '../resources/api-verb.ts';
import { bodyFileOption, composeBody } from '../resources/body-file.ts';
import {
  containerOptions,
  mark,
  readContainerFlags,
  replacedListOptions,
} from '../resources/container-flags.ts';
import { defineResourceVerbs, type ResourceCommandSpec } from '../resources/resource-command.ts';
import { podLogVerb } from './pod-log.ts';

const locked = flag({ help: 'let the platform refuse to stop, restart or terminate the pod' });

const createOptions = {
  ...containerOptions,
  name: mark(containerOptions.name),
  image: mark(containerOptions.image, 'required unless --template has one'),
  disk: mark(containerOptions.disk, 'default: that of --template, else 20'),
  template: text({
    placeholder: 'ID',
    help: 'ID or name of the template whose settings apply where you give none',
  }),
  gpu: text({
    placeholder: 'ID',
    help: 'GPU type, from `millrace catalog gpus`; give either --gpu or --cpu',
  }),
  gpuCount: integer({ min: 1, max: 64, default: 1, help: 'with --gpu: number of GPUs' }),
  cpu: text({
    placeholder: 'ID',
    help: 'CPU flavor, from `millrace catalog cpus`; give either --gpu or --cpu',
  }),
  vcpus: integer({ min: 2, max: 1_024, default: 2, help: 'with --cpu: vCPUs, a power of two' }),
  memory: integer({
    ...{ min: 1, max: 65_536, default: 4, placeholder: 'GB' },
    help: 'with --cpu: memory, GB',
  }),
  locked,
  file: bodyFileOption,
};

const updateOptions = {
  ...containerOptions,
  ...replacedListOptions,
  locked,
  unlocked: flag({ help: 'undo --locked' }),
  file: bodyFileOption,
};

const kind: ResourceCommandSpec<'pods', typeof createOptions, typeof updateOptions> = {
  name: 'pods',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    STATUS: ({ status }) => status,
    COMPUTE: describeCompute,
    'USD/H': ({ cost }) => String(cost),
    ENDPOINT: ({ endpointId }) => endpointId ?? '',
    NODE: ({ node }) => node ?? '',
    REASON: ({ reason }) => reason ?? '',
  },
  create: {
    options: createOptions,
    compose: composeCreation,
    examples: [
      'millrace pods create --name notes --image busybox --args "sleep 600" --cpu cpu',
      'millrace pods create --file pod.json --name second --json | jq -r .id',
    ],
  },
  update: {
    options: updateOptions,
    compose: composeChange,
    effect:
      'A change of the image, arguments, environment, ports, registry or mount paths recreates the container: its ' +
      'disk is wiped, its mounts are kept. So does a larger disk on Docker with disk quotas.',
    examples: ['millrace pods update pod_01912f4e-… --env LEVEL=debug --locked'],
  },
  fields: { ports: 'port' },
};

export const podsCommands: CommandGroup = {
  name: 'millrace pods',
  description: [
    'A pod is one container that runs until you stop or terminate it.',
    'To a key without the scope pods:write, the value of each variable is "***".',
  ],
  verbs: {
    ...defineResourceVerbs(kind),
    start: defineStateVerb('start', 'starts a stopped pod', (pods, id) => pods.start(id)),
    stop: defineStateVerb('stop', 'stops a pod and keeps its disk', (pods, id) => pods.stop(id)),
    restart: defineStateVerb(
      'restart',
      'recreates the container; its disk is wiped, mounts are kept',
      (pods, id) => pods.restart(id),
    ),
    terminate: defineApiVerb({
      summary: 'removes a pod permanently',
      id: 'pod ID or name',
      options: { yes: yesOption },
      examples: ['millrace pods terminate pod_01912f4e-…'],
      act: async ({ caller, id, json, values }) => {
        await confirm(`Terminate pod ${id} and remove its disk?`, values);
        await connectPods(caller).terminate(id);
        return json ? JSON.stringify({ id, terminated: true }) : `${id}  terminated`;
      },
    }),
    logs: podLogVerb,
  },
  examples: [
    'millrace pods create --name notes --image busybox --args "sleep 600" --cpu cpu',
    'millrace pods restart pod_01912f4e-…',
    'millrace pods logs notes -f',
  ],
};

function defineStateVerb(
  word: string,
  summary: string,
  act: (pods: PodsClient, id: string) => Promise<PodRecord>,
): Verb {
  return defineApiVerb({
    ...{ summary, id: 'pod ID or name', options: {} },
    examples: [`millrace pods ${word} pod_01912f4e-…`],
    act: async ({ caller, id, json }) => {
      const pod = await act(connectPods(caller), id);
      return json ? JSON.stringify(pod) : `${pod.id}  ${pod.status}`;
    },
  });
}

function describeCompute({ cpu, gpu }: PodRecord): string {
  if (gpu) return `${gpu.count} x ${gpu.id}`;
  return cpu ? `${cpu.vcpuCount} vCPU, ${cpu.memory} GB` : '';
}

function composeCreation(values: OptionValues<typeof createOptions>): object {
  const { cpu, file, gpu, gpuCount, memory, template, vcpus } = values;
  return composeBody(file, {
    ...readContainerFlags(values),
    template,
    gpu: gpu === undefined ? undefined : { id: gpu, count: gpuCount },
    cpu: cpu === undefined ? undefined : { id: cpu, vcpuCount: vcpus, memory },
    locked: values.locked || undefined,
  });
}

function composeChange(values: OptionValues<typeof updateOptions>): object {
  const { file, unlocked } = values;
  if (values.locked && unlocked)
    throw new UsageError('--locked and --unlocked exclude each other; give one');
  const isLocked = values.locked ? true : unlocked ? false : undefined;
  return composeBody(file, { ...readContainerFlags(values), locked: isLocked });
}
