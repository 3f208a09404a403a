// Interprets an engine's error answers: whether a retry can help. Pure.
import { EngineError } from '../engine.ts';
import type { DockerError } from './docker-client.ts';

const BAD_REQUEST = 400;
/** Exit codes of a shell: not executable, and not found. */
const NO_COMMAND = [126, 127];
const AMBIGUOUS = /network .*is ambiguous/i;

/** The name of a container or network is already in use; Docker and podman use the same words. */
export function isNameTaken({ message }: DockerError): boolean {
  return /already (in use|exists|used)/i.test(message);
}

/** Two networks have the name of the container's network. */
export function isNetworkAmbiguous({ message }: DockerError): boolean {
  return AMBIGUOUS.test(message);
}

/** Only few file systems support disks of a limited size. */
export function isAboutDiskSize({ message }: DockerError): boolean {
  return /storage[ -]?opt|quota/i.test(message);
}

const PERMANENT = [
  /executable file .*not found|no such file or directory|permission denied|exec format error/i,
  /could not select device driver|CDI device|unknown device|no known GPU vendor/i,
  /invalid reference format/i,
];
/** Errors that look like a fault of the request but come from the machine. */
const TEMPORARY =
  /bind source path does not exist|statfs|network .*not found|address already in use/i;

/** Judges a failed create or start. `exitCode`: of the container afterwards, if it exists. */
export function judgeRefusal(answer: DockerError, exitCode: number | null): EngineError {
  const { message, status } = answer;
  const isCommand = exitCode !== null && NO_COMMAND.includes(exitCode);
  const isPermanent =
    isCommand || status === BAD_REQUEST || PERMANENT.some((pattern) => pattern.test(message));
  const isTemporary = AMBIGUOUS.test(message) || TEMPORARY.test(message);
  const code = isPermanent && !isTemporary ? 'refused' : 'unavailable';
  return new EngineError(code, message, { cause: answer });
}

const NO_SUCH_IMAGE =
  /not found|manifest unknown|no such image|denied|unauthorized|authentication required|no basic auth credentials|incorrect username|invalid reference|no matching manifest/i;
/** An unreachable registry, in words that also match some of the above. */
const NO_REGISTRY = /dial tcp|lookup|no such host|connection refused|timeout|TLS|toomanyrequests/i;

export function judgePull(image: string, message: string): EngineError {
  const isPermanent = NO_SUCH_IMAGE.test(message) && !NO_REGISTRY.test(message);
  const text = `the image ${image} cannot be pulled: ${message}`;
  return new EngineError(isPermanent ? 'refused' : 'unavailable', text);
}
