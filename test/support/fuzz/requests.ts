// Composes one request of the fuzzer: a correct call with some changes, or bytes that are no
// request.
import type { Dice } from './dice.ts';
import { type FuzzRequest, frame, type Part } from './framing.ts';
import { bendHeaders, bendPath, bendQuery, type Header, METHODS } from './heads.ts';
import type { Call, FuzzedOperation, Ground } from './operations.ts';
import { type Allowance, tame } from './safety.ts';
import { bendBytes, bendValue } from './values.ts';

export interface RequestOptions {
  operation: FuzzedOperation;
  /** Path of the operation, with values for its parameters. */
  path: string;
  authorization: string | undefined;
  ground: Ground;
  allowance: Allowance;
}

export function composeRequest(dice: Dice, options: RequestOptions): FuzzRequest {
  const { authorization, ground, operation, path } = options;
  const route = `${operation.method} ${operation.path}`;
  const call = operation.compose(dice, ground);
  const bent = chooseParts(dice, call.json === undefined ? 30 : 90);
  const headers: Header[] = [['Host', 'localhost']];
  if (authorization !== undefined) headers.push(['Authorization', authorization]);
  for (const [name, value] of call.headers ?? []) headers.push([name, value]);
  const { body, mediaType } = composeBody(dice, { call, route, bent, options });
  if (body) headers.push(['Content-Type', mediaType]);
  const query = [...(call.query ?? [])].map(([name, value]): Header => [name, value]);
  const draft = { method: operation.method, path, query, headers, body };
  if (bent.has('path')) draft.path = bendPath(dice, draft.path);
  if (bent.has('query')) draft.query = bendQuery(dice, draft.query);
  if (bent.has('headers')) draft.headers = bendHeaders(dice, draft.headers);
  if (bent.has('method')) draft.method = dice.pick(METHODS);
  return frame(dice, { draft, route, bent, mayWait: operation.mayWait });
}

function chooseParts(dice: Dice, bodyWeight: number): Set<Part> {
  const bent = new Set<Part>();
  const count = dice.weigh(
    [
      [15, 0],
      [60, 1],
      [20, 2],
      [5, 3],
    ],
    1,
  );
  while (bent.size < count) {
    bent.add(
      dice.weigh<Part>(
        [
          [18, 'path'],
          [16, 'query'],
          [22, 'headers'],
          [bodyWeight, 'body'],
          [4, 'method'],
          [10, 'framing'],
        ],
        'body',
      ),
    );
  }
  return bent;
}

interface BodyPlan {
  call: Call;
  route: string;
  bent: ReadonlySet<Part>;
  options: RequestOptions;
}

function composeBody(
  dice: Dice,
  { bent, call, options, route }: BodyPlan,
): { body: Buffer | undefined; mediaType: string } {
  const { bytes: own, json } = call;
  if (own) {
    const body = bent.has('body') ? bendBytes(dice, own.bytes) : own.bytes;
    return { body, mediaType: own.mediaType };
  }
  const mediaType = 'application/json';
  const { allowance } = options;
  const harmless = (value: unknown) => tame(route, value, { allowance, dice });
  if (!bent.has('body')) {
    return { body: json === undefined ? undefined : write(harmless(json)), mediaType };
  }
  if (dice.chance(0.005)) return { body: Buffer.alloc(11_000_000, ' '), mediaType };
  // An operation without a body gets an unexpected body.
  let value: unknown = json ?? { action: 'start' };
  for (let bends = dice.integer(1, 3); bends > 0; bends--) value = bendValue(dice, value);
  const bytes = write(harmless(value));
  return { body: dice.chance(0.2) ? bendBytes(dice, bytes) : bytes, mediaType };
}

function write(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value) ?? 'undefined');
}
