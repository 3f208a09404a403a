// Bytes of the fuzzer that are no request, or an incomplete one.
import type { Dice } from './dice.ts';
import type { FuzzRequest } from './framing.ts';

const END = '\r\n\r\n';
const HEALTH = `GET /healthz HTTP/1.1\r\nHost: a${END}`;
const LAST = `GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close${END}`;

/** `authorization`: header of a valid key, which some of them have. */
export function composeNoRequest(dice: Dice, authorization: string): FuzzRequest {
  const common = {
    ...{ route: 'no request', bent: new Set<never>(), method: 'GET', target: '' },
    ...{ methods: ['GET'], mayWait: false, maySilence: true, hangsUp: false },
  };
  const text = (bytes: string) => ({ ...common, pieces: [Buffer.from(bytes, 'latin1')] });
  const key = `Authorization: ${authorization}`;
  if (dice.chance(0.7)) return text(dice.pick(BROKEN));
  return dice.pick<() => FuzzRequest>([
    () => ({ ...common, pieces: [Buffer.from([...Array(300)].map(() => dice.integer(0, 255)))] }),
    // Slow, then silent.
    () => ({
      ...{ ...common, hangsUp: true },
      pieces: [...HEALTH.slice(0, dice.integer(1, 30))].flatMap((each) => [Buffer.from(each), 1]),
    }),
    // Slow, to the end.
    () => ({
      ...{ ...common, maySilence: false },
      pieces: [...LAST].flatMap((each, at) => [Buffer.from(each), ...(at % 16 === 0 ? [1] : [])]),
    }),
    // Disconnects before the answer.
    () => ({
      ...{ ...common, hangsUp: true },
      pieces: [Buffer.from(`GET /v2/pods HTTP/1.1\r\nHost: a\r\n${key}${END}`)],
    }),
    // Pipelined requests, all answered.
    () => ({
      ...{ ...common, maySilence: false, methods: Array(20).fill('GET') },
      pieces: [Buffer.from(HEALTH.repeat(19) + LAST)],
    }),
    () => ({ ...common, methods: ['GET', 'GET'], pieces: [Buffer.from(`${HEALTH}GARBAGE${END}`)] }),
    () => ({
      ...{ ...common, methods: ['POST', 'GET'] },
      pieces: [
        Buffer.from(
          `POST /v2/pods HTTP/1.1\r\nHost: a\r\n${key}\r\nContent-Type: application/json\r\n` +
            `Content-Length: 2${END}{}${LAST}`,
        ),
      ],
    }),
  ])();
}

const BROKEN: readonly [string, ...string[]] = [
  END,
  `GET${END}`,
  `GET /healthz${END}`,
  `GET /healthz HTTP/0.9${END}`,
  `GET /healthz HTTP/1.0${END}`,
  `GET /healthz HTTP/1.1${END}`,
  `GET /healthz HTTP/1.2\r\nHost: a${END}`,
  `GET /healthz HTTP/2.0\r\nHost: a${END}`,
  `GET  /healthz  HTTP/1.1\r\nHost: a${END}`,
  `GET /a b HTTP/1.1\r\nHost: a${END}`,
  `GET\t/healthz\tHTTP/1.1\r\nHost: a${END}`,
  'GET /healthz HTTP/1.1\nHost: a\n\n',
  `GET /healthz HTTP/1.1\r\nHost : a${END}`,
  `GET /healthz HTTP/1.1\r\n Host: a${END}`,
  `GET /healthz HTTP/1.1\r\n: a${END}`,
  `GET /healthz HTTP/1.1\r\nHost: a\r\nX${END}`,
  `GET /healthz\0 HTTP/1.1\r\nHost: a${END}`,
  `GET ${'/a'.repeat(20_000)} HTTP/1.1\r\nHost: a${END}`,
  `${'A'.repeat(100_000)}`,
  `CONNECT elsewhere.invalid:443 HTTP/1.1\r\nHost: a${END}`,
  `OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close${END}`,
  `GET /healthz HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__${END}`,
  `GET /lb/ep_none/x HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade${END}`,
  `PRI * HTTP/2.0${END}SM${END}`,
  '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefgh',
  '{"jsonrpc":"2.0"}\n',
  'SSH-2.0-OpenSSH_9.0\r\n',
];
