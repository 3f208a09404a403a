// `millrace pods`: manages pods.
import { setTimeout as sleep } from 'node:timers/promises';
import { connectPods, type PodsClient } from '../../client/platform-client.ts';
import { POD_FIELDS } from '../../wire/resources/fields.ts';
import type { PodRecord, PodStatus } from '../../wire/resources/pod.ts';
import { type CommandGroup, EXIT, type Verb } from '../command.ts';
import { checkArguments, parseSharedOptions } from '../option-parser.ts';
import { flag, integer, type OptionValues, text, UsageError } from '../options.ts';
import { print, printNote } from '../output.ts';
import { callPlatform, connectCaller } from './client-options.ts';
import {
  CALL_EXIT_CODES,
  callOptions,
  confirm,
  defineApiVerb,
  defineResourceVerbs,
  yesOption,
} from './resource-command.ts';

const locked = flag({ help: 'let the platform refuse to stop, restart or terminate the pod' });

const createOptions = {
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
    min: 1,
    max: 65_536,
    default: 4,
    placeholder: 'GB',
    help: 'with --cpu: memory, GB',
  }),
  locked,
};

const updateOptions = { locked, unlocked: flag({ help: 'undo --locked' }) };

const verbs = defineResourceVerbs({
  name: 'pods',
  fields: POD_FIELDS,
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    STATUS: ({ parked, status }) => (parked ? `${status}, parked` : status),
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
});

const POLL_MS = 1_000;
/** Read at each poll, bytes: a pod that prints more in a second loses lines. */
const WINDOW = 262_144;

/** Statuses in which a pod prints nothing more. */
const STOPPED: readonly PodStatus[] = ['EXITED', 'ERROR', 'TERMINATED'];

const logOptions = {
  bytes: integer({
    min: 1,
    max: 1_048_576,
    default: 65_536,
    placeholder: 'N',
    help: 'print at most this many bytes from the end',
  }),
  follow: flag({ alias: '-f', help: 'print new output until the pod stops; also -f' }),
};

const logPositionals = [{ name: '<id>', help: 'pod ID or name' }];

const podLogVerb: Verb = {
  summary: "prints the end of the pod's output",
  description: [
    `With --follow, the output is read every second; of a pod that prints more than ${WINDOW / 1_024} KB a second, lines ` +
      'are lost, and a note says so.',
  ],
  positionals: logPositionals,
  options: { ...logOptions, ...callOptions },
  examples: ['millrace pods logs pod_01912f4e-… --bytes 2000', 'millrace pods logs notes -f'],
  exitCodes: CALL_EXIT_CODES,
  async run(args) {
    const {
      positionals: words,
      shared,
      values,
    } = parseSharedOptions(logOptions, callOptions, args);
    checkArguments(logPositionals, words);
    const { bytes, follow } = values;
    if (follow && shared.json)
      throw new UsageError('--follow and --json exclude each other; give one');
    const [given = ''] = words;
    const pods = connectPods(connectCaller(shared));
    await callPlatform(async () => {
      if (follow) return followLog(pods, given, bytes);
      const log = await pods.log(given, { maxBytes: bytes });
      if (shared.json) void print(`${JSON.stringify({ id: given, log })}\n`);
      else if (log === '') printNote(explainEmpty((await pods.get(given)).status));
      else void print(`${log.replace(/\n$/, '')}\n`);
    });
    return EXIT.ok;
  },
};

export const podsCommands: CommandGroup = {
  name: 'millrace pods',
  description: [
    'A pod is one container that runs until you stop or terminate it.',
    'To a key without the scope pods:write, the value of each variable is "***".',
  ],
  verbs: {
    ...verbs,
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
    summary,
    id: 'pod ID or name',
    options: {},
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

function composeCreation(values: OptionValues<typeof createOptions>): Record<string, unknown> {
  const { cpu, gpu, gpuCount, memory, vcpus } = values;
  return {
    gpu: gpu === undefined ? undefined : { id: gpu, count: gpuCount },
    cpu: cpu === undefined ? undefined : { id: cpu, vcpuCount: vcpus, memory },
    locked: values.locked || undefined,
  };
}

function composeChange({
  locked: isLocked,
  unlocked: isUnlocked,
}: OptionValues<typeof updateOptions>): Record<string, unknown> {
  if (isLocked && isUnlocked) {
    throw new UsageError('--locked and --unlocked exclude each other; give one');
  }
  return { locked: isLocked || isUnlocked ? isLocked : undefined };
}

async function followLog(pods: PodsClient, given: string, bytes: number): Promise<void> {
  // The name may pass to another pod meanwhile.
  const { id } = await pods.get(given);
  let before: string | undefined;
  for (;;) {
    // Read before the log: what the pod prints at its end is in the log then.
    const { status } = await pods.get(id);
    const after = dropCutLine(await pods.log(id, { maxBytes: WINDOW }), WINDOW);
    if (before === undefined) {
      await print(dropCutLine(cutEnd(after, bytes), bytes));
    } else {
      const { added, isBroken } = findGrowth(before, after);
      if (isBroken) printNote('(output is missing here, or the container is a new one)\n');
      if (added !== '') await print(added);
    }
    before = after;
    if (STOPPED.includes(status)) {
      if (after === '') printNote(explainEmpty(status));
      return;
    }
    await sleep(POLL_MS);
  }
}

function explainEmpty(status: PodStatus): string {
  return status === 'TERMINATED'
    ? '(the pod is terminated, and its output was removed with it)\n'
    : '(the pod has printed nothing)\n';
}

function cutEnd(text: string, bytes: number): string {
  return Buffer.from(text).subarray(-bytes).toString();
}

interface LogGrowth {
  added: string;
  /** The new end does not continue the old one: lines were lost, or the log is another one. */
  isBroken: boolean;
}

/** `maxBytes`: how much of the end was asked for. A line that was cut at the start is left out. */
export function dropCutLine(end: string, maxBytes: number): string {
  return Buffer.byteLength(end) < maxBytes ? end : end.slice(end.indexOf('\n') + 1);
}

export function findGrowth(before: string, after: string): LogGrowth {
  if (after.startsWith(before)) return { added: after.slice(before.length), isBroken: false };
  const shared = measureOverlap(before, after);
  return { added: after.slice(shared), isBroken: shared === 0 };
}

/** Length of the longest end of `before` that is a start of `after`, by the prefix function of Knuth, Morris and Pratt. */
function measureOverlap(before: string, after: string): number {
  const borders = new Uint32Array(after.length);
  const extend = (matched: number, next: string | undefined): number => {
    let length = matched;
    while (length > 0 && after[length] !== next) length = borders[length - 1] ?? 0;
    return after[length] === next ? length + 1 : length;
  };
  for (let at = 1; at < after.length; at++) borders[at] = extend(borders[at - 1] ?? 0, after[at]);
  let matched = 0;
  // Compare code units, like the bounds.
  for (let at = 0; at < before.length; at++) matched = extend(matched, before[at]);
  return matched;
}
