// The attacker's process: runs the attacks that it is asked to by IPC, so that what they cost here is
// not taken from the well-behaved client. It is killed in the end, with whatever it holds open.
import type { Attack, Tally, Target } from './attack.ts';
import { ATTACKS } from './attacks.ts';

export type ToAttacker =
  | { kind: 'prepare' | 'send'; name: string; target: Target; count: number }
  | { kind: 'release' };
export type FromAttacker =
  | { kind: 'prepared' }
  | { kind: 'holding' }
  | { kind: 'sent'; tally: Tally }
  | { kind: 'failed'; error: string };

let release: (() => void) | undefined;

function tell(message: FromAttacker): void {
  process.send?.(message);
}

async function attack({ send }: Attack, target: Target, count: number): Promise<Tally> {
  const tally: Tally = { answers: {}, largestAnswerBytes: 0 };
  await send({
    target,
    count,
    note(answer, bytes = 0) {
      tally.answers[answer] = (tally.answers[answer] ?? 0) + 1;
      tally.largestAnswerBytes = Math.max(tally.largestAnswerBytes, bytes);
    },
    hold() {
      return new Promise((resolve) => {
        release = resolve;
        tell({ kind: 'holding' });
      });
    },
  });
  return tally;
}

async function follow(message: ToAttacker): Promise<void> {
  if (message.kind === 'release') return release?.();
  const { count, kind, name, target } = message;
  const found = ATTACKS.find((each) => each.name === name);
  if (!found) throw new Error(`no attack "${name}"`);
  if (kind === 'send') return tell({ kind: 'sent', tally: await attack(found, target, count) });
  await found.prepare?.(target, count);
  tell({ kind: 'prepared' });
}

process.on('message', (message: ToAttacker) => {
  follow(message).catch((error: Error) => tell({ kind: 'failed', error: String(error.stack) }));
});
process.once('disconnect', () => process.exit());
