// Carriers over a network that a test controls: real carriers behind a relay, and a simulated one for
// calls without a network.
import { setTimeout as sleep } from 'node:timers/promises';
import type { ManualClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { Relay } from '../../../src/conformance/relay.ts';
import { createGrpcLink } from '../../../src/transport/grpc/grpc-link.ts';
import { createHttpLink } from '../../../src/transport/http-link.ts';
import { createRunPodLink } from '../../../src/transport/runpod/link.ts';
import { LinkError, type WorkerLink } from '../../../src/wire/link/worker-link.ts';
import {
  type CarrierPort,
  issueWorkerKey,
  openGrpcPort,
  openHttpPort,
} from '../../support/network/link-ports.ts';
import { ENDPOINT, type Platform } from '../../support/queue-platform.ts';

export interface FaultyCarrier {
  /**
   * Opens the link of one worker process, on its own connections. An impatient link soon gives up a
   * half-open connection; on a slow machine it may also give up others, so `repeat` all of its calls.
   */
  openLink(patience?: 'patient' | 'impatient'): WorkerLink;
  /** Error message of a call that an impatient link gave up. */
  readonly silence: RegExp;
  /** Drops all answers until the connections are cut. */
  mute(): void;
  /** Makes the open connections half open: nothing passes and nothing fails. */
  kill(): void;
  /** Like `kill`, but only after `bytes` more bytes of answers on a connection. */
  killAfter(bytes: number): void;
  /** Fails all open calls; later calls succeed. */
  cut(): void;
  /** Stops the platform without notice and starts it again; the links stay. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

/** How long an impatient link waits for an answer beyond the requested wait. */
const PATIENCE_MS = 400;
/** Far more than needed; ends the calls of a test that was given up. */
const MOST_REPEATS = 1_000;
/** Only the limit of the test ends the wait of a patient link. */
const ENDLESS_MS = 300_000;

interface Line {
  state: 'open' | 'mute' | 'dead';
  readonly broken: AbortController;
}

function startLine(): Line {
  return { state: 'open', broken: new AbortController() };
}

/** Calls the queue without a carrier; the simulated line decides whether the answer arrives. */
export async function openDirect(platform: Platform): Promise<FaultyCarrier> {
  let line = startLine();
  const breakLine = () => {
    line.broken.abort();
    line = startLine();
  };
  const broken = ({ broken: { signal } }: Line) =>
    new Promise<never>((_, reject) => {
      const fail = () => reject(new LinkError('unavailable', 'the connection was cut'));
      if (signal.aborted) fail();
      signal.addEventListener('abort', fail);
    });
  const call = async <T>(act: (link: WorkerLink, gone: AbortSignal) => Promise<T>): Promise<T> => {
    const own = line;
    const failure = broken(own);
    failure.catch(() => {});
    // A caller on a dead line gives up after a while and reconnects.
    if (own.state === 'dead') setTimeout(breakLine, PATIENCE_MS / 4);
    if (own.state === 'dead') return failure;
    const answer = act(platform.queue.link(ENDPOINT), own.broken.signal);
    answer.catch(() => {});
    const first = await Promise.race([answer, failure]);
    return own.state === 'open' ? first : failure;
  };
  return {
    silence: /was cut/,
    openLink: () => ({
      hello: (hello) => call((link) => link.hello(hello)),
      take: (request, signal) =>
        call((link, gone) => link.take(request, AbortSignal.any([signal, gone]))),
      renew: (request, signal) =>
        call((link, gone) => link.renew(request, AbortSignal.any([signal, gone]))),
      report: (request) => call((link) => link.report(request)),
      bye: (bye) => call((link) => link.bye(bye)),
    }),
    mute() {
      line.state = 'mute';
    },
    kill() {
      line.state = 'dead';
      setTimeout(breakLine, PATIENCE_MS);
    },
    // A partial answer has the same effect as none.
    killAfter() {
      line.state = 'mute';
      setTimeout(breakLine, PATIENCE_MS);
    },
    cut: breakLine,
    async restart() {
      breakLine();
      await platform.restart();
    },
    close: async () => {},
  };
}

interface ClosableLink extends WorkerLink {
  close(): Promise<void>;
}

interface Wire {
  openPort(platform: Platform): Promise<CarrierPort>;
  silence: RegExp;
  createLink(port: number, key: string, answerMarginMs: number): ClosableLink;
}

/** Opens a server, and links to it through a relay. */
async function openBehindRelay(platform: Platform, wire: Wire): Promise<FaultyCarrier> {
  const { clock } = platform;
  const { key } = await issueWorkerKey(platform);
  const relay = await Relay.start();
  const links: ClosableLink[] = [];
  let port = await wire.openPort(platform);
  relay.target = port.url;
  const leave = async () => {
    relay.target = undefined;
    relay.cut();
    await passTime(clock, port.close());
  };
  return {
    silence: wire.silence,
    openLink(patience = 'patient') {
      const marginMs = patience === 'patient' ? ENDLESS_MS : PATIENCE_MS;
      const link = wire.createLink(relay.port, key, marginMs);
      links.push(link);
      return link;
    },
    mute: () => relay.mute(),
    kill: () => relay.kill(),
    killAfter: (bytes) => relay.killAfter(bytes),
    cut: () => relay.cut(),
    async restart() {
      await leave();
      await platform.restart();
      port = await wire.openPort(platform);
      relay.target = port.url;
    },
    async close() {
      await Promise.all(links.map((link) => link.close()));
      await leave();
      await relay.close();
    },
  };
}

/** A stopping platform waits up to 2 s for the next chunk of each RunPod stream, by its own clock. */
async function passTime(clock: ManualClock, closing: Promise<void>): Promise<void> {
  let isClosed = false;
  const closed = closing.finally(() => {
    isClosed = true;
  });
  for (let passedMs = 0; !isClosed && passedMs < 2_000; passedMs += 100) {
    await sleep(5);
    if (!isClosed) await clock.advance(100);
  }
  await closed;
}

export function openFaultyHttp(platform: Platform): Promise<FaultyCarrier> {
  return openBehindRelay(platform, {
    openPort: openHttpPort,
    silence: /timed out/,
    createLink: (port, key, answerMarginMs) =>
      createHttpLink({
        ...{ url: `http://127.0.0.1:${port}`, endpointId: ENDPOINT, key, log: silentLog },
        answerMarginMs,
      }),
  });
}

export function openFaultyRunPod(platform: Platform): Promise<FaultyCarrier> {
  let pods = 0;
  return openBehindRelay(platform, {
    openPort: openHttpPort,
    silence: /\bTimeout\b/,
    createLink(port, key) {
      const base = `http://127.0.0.1:${port}/runpod/v2/${ENDPOINT}`;
      const templates = {
        take: `${base}/job-take/$ID?`,
        done: `${base}/job-done/$RUNPOD_POD_ID/$ID?`,
        stream: `${base}/job-stream/$RUNPOD_POD_ID/$ID?`,
        ping: `${base}/ping/$RUNPOD_POD_ID?`,
      };
      const podId = `pod-${++pods}`;
      const facts = { hostname: 'host', version: '0.0.0', log: silentLog };
      return createRunPodLink({ templates, podId, key, ...facts });
    },
  });
}

export function openFaultyGrpc(platform: Platform): Promise<FaultyCarrier> {
  return openBehindRelay(platform, {
    openPort: openGrpcPort,
    // Not that of the keep-alive, which would detect the half-open connection later.
    silence: /no response in time/,
    createLink: (port, key, answerMarginMs) =>
      createGrpcLink({
        ...{ url: `grpc://127.0.0.1:${port}`, endpointId: ENDPOINT, key, log: silentLog },
        answerMarginMs,
      }),
  });
}

/** Retries the call while the platform is unavailable, as a worker does. */
export async function repeat<T>(call: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await call();
    } catch (error) {
      const isPassing = error instanceof LinkError && error.code === 'unavailable';
      if (!isPassing || tries >= MOST_REPEATS) throw error;
      await sleep(20);
    }
  }
}
