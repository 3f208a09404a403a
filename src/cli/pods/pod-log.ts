// `millrace pods logs`: prints the end of a pod's output, and with -f what follows until the pod stops.
import { setTimeout as sleep } from 'node:timers/promises';
import { connectPods, type PodsClient } from '../../client/platform-client.ts';
import type { PodStatus } from '../../wire/resources/pod.ts';
import { EXIT, type Verb } from '../command.ts';
import { checkArguments, parseSharedOptions } from '../option-parser.ts';
import { flag, integer, UsageError } from '../options.ts';
import { print, printNote } from '../output.ts';
import { CALL_EXIT_CODES, callOptions } from '../resources/api-verb.ts';
import { callPlatform, connectCaller } from '../resources/client-options.ts';
import { dropCutLine, findGrowth } from './log-tail.ts';

const POLL_MS = 1_000;
/** Read at each poll, bytes: a pod that prints more in a second loses lines. */
const WINDOW = 262_144;

/** Statuses in which a pod prints nothing more. */
const STOPPED: readonly PodStatus[] = ['EXITED', 'ERROR', 'TERMINATED'];

const options = {
  bytes: integer({
    ...{ min: 1, max: 1_048_576, default: 65_536, placeholder: 'N' },
    help: 'print at most this many bytes from the end',
  }),
  follow: flag({ help: 'print new output until the pod stops; also -f' }),
};

const positionals = [{ name: '<id>', help: 'pod ID or name' }];

export const podLogVerb: Verb = {
  summary: "prints the end of the pod's output",
  description: [
    `With --follow, the output is read every second; of a pod that prints more than ${WINDOW / 1_024} KB a second, lines ` +
      'are lost, and a note says so.',
  ],
  positionals,
  options: { ...options, ...callOptions },
  examples: ['millrace pods logs pod_01912f4e-… --bytes 2000', 'millrace pods logs notes -f'],
  exitCodes: CALL_EXIT_CODES,
  async run(args) {
    const spelled = args.map((arg) => (arg === '-f' ? '--follow' : arg));
    const {
      positionals: words,
      shared,
      values,
    } = parseSharedOptions(options, callOptions, spelled);
    checkArguments(positionals, words);
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
