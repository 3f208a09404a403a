// What an attack on the platform is: data, and one function that runs in the attacker's own process.

/** What the attacker knows of the platform: its addresses, and a key of its own user that is not admin. */
export interface Target {
  url: string;
  grpcUrl: string;
  key: string;
  /** A queue endpoint of the attacker's without workers. */
  endpoint: string;
  /** A load-balancing endpoint of the attacker's with one worker; empty on other platforms than `default`. */
  balanced: string;
}

/** What the attacker saw. */
export interface Tally {
  /** How often each answer came: an HTTP status, `grpc <status>`, `closed`, `open`. */
  answers: Record<string, number>;
  largestAnswerBytes: number;
}

export interface AttackContext {
  target: Target;
  /** How many of what the attack sends. */
  count: number;
  note(answer: string, bytes?: number): void;
  /** Resolves when the well-behaved client was served for a while beside what is open now. */
  hold(): Promise<void>;
}

/** The platform's name server never answers for names below it. */
export const SILENT_DOMAIN = 'silent.test';

/**
 * Sets of options that a platform is started with; attacks with the same one share a platform. `cramped`: with so little
 * memory that it ends if it keeps what the attacker sends.
 */
export type PlatformKind = 'default' | 'impatient' | 'cramped';

export interface Attack {
  /** Unique; names what is sent. */
  name: string;
  /** Default: `default`. */
  platform?: PlatformKind;
  /** The fix without which the attack succeeds; it is not run until this is removed. */
  pending?: string;
  /** `short` for `npm test`, `full` for the soak and the benchmark. */
  count: { short: number; full: number };
  /** Puts in place what the attack needs; the well-behaved client does not run yet. */
  prepare?(target: Target, count: number): Promise<void>;
  send(context: AttackContext): Promise<void>;
  /** Every answer that may come. */
  answers: readonly string[];
  /** Answers that may come only so often. */
  atMost?: Readonly<Record<string, number>>;
  /** Answers that have to come so often. */
  atLeast?: Readonly<Record<string, number>>;
  /** Default 65,536. */
  largestAnswerBytes?: number;
  /** What the platform may read from its sockets and files meanwhile, MB. Default: any number. */
  readMb?: number;
  /** How far the platform's resident memory may rise, MB. Default: up to 1,000 in all, as every attack. */
  growthMb?: number;
  /** How often the platform may read topics for event streams. Default: any number. */
  eventReads?: number;
  /** The well-behaved client's webhook has to arrive during `hold`. */
  needsWebhook?: boolean;
}

/** Each way in which what was seen is not what has to be. */
export function judgeTally(attack: Attack, { answers, largestAnswerBytes }: Tally): string[] {
  const { atLeast = {}, atMost = {}, largestAnswerBytes: limit = 65_536 } = attack;
  const faults: string[] = [];
  for (const [answer, times] of Object.entries(answers)) {
    if (!attack.answers.includes(answer)) faults.push(`${times} times answered "${answer}"`);
  }
  for (const [answer, most] of Object.entries(atMost)) {
    const times = answers[answer] ?? 0;
    if (times > most) faults.push(`${times} times "${answer}"; the most is ${most}`);
  }
  for (const [answer, least] of Object.entries(atLeast)) {
    const times = answers[answer] ?? 0;
    if (times < least) faults.push(`${times} times "${answer}"; the least is ${least}`);
  }
  if (largestAnswerBytes > limit) {
    faults.push(`an answer of ${largestAnswerBytes} bytes; the most is ${limit}`);
  }
  return faults;
}
