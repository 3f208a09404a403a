#!/usr/bin/env node
// The `millrace` command: runs dist/cli/main.js on a Node that is new enough. It is plain
// JavaScript that any Node from 14 on can parse; everything else belongs to src/cli.
import { spawn } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, readFileSync, realpathSync } from 'node:fs';
import module from 'node:module';
import { constants, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const requiredMajor = 24;
const exitUnusable = 2;
const thisFile = realpathSync(fileURLToPath(import.meta.url));

function readMajor(version) {
  return Number.parseInt(version.split('.')[0], 10);
}

function complain(lines) {
  process.stderr.write(lines.map((line) => `millrace: ${line}\n`).join(''));
  process.exitCode = exitUnusable;
}

async function runHere() {
  const main = new URL('../dist/cli/main.js', import.meta.url);
  if (!existsSync(main)) {
    complain([`${fileURLToPath(main)} is missing; run \`npm run build\` in the checkout`]);
    return;
  }
  if (process.channel) {
    // The parent process (`runInstalledNode` below, for example) may be killed before it can pass a
    // signal on. The kernel then closes the channel, so this process ends as after a signal.
    process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'));
    process.channel.unref();
  }
  // Caches compiled code and handlers without their types between starts: this saves a quarter of
  // the start and, without the type stripper, 18 MB of each worker.
  // Node's own place for it is the temporary folder, where any user can plant code that this one would run.
  const cache = process.env.NODE_COMPILE_CACHE || openCodeCache();
  if (cache !== undefined) module.enableCompileCache(cache);
  const cli = await import(main.href);
  process.exitCode = await cli.main(process.argv.slice(2));
}

/** A folder that only this user can change; undefined: there is none. src/base/make-folder.ts has the same check. */
function openCodeCache() {
  const folder = join(tmpdir(), `millrace-code-${process.getuid ? process.getuid() : 'all'}`);
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if (error.code !== 'EEXIST') return undefined;
  }
  const stats = lstatSync(folder);
  const uid = process.getuid ? process.getuid() : stats.uid;
  return stats.isDirectory() && stats.uid === uid && (stats.mode & 0o022) === 0
    ? folder
    : undefined;
}

/** The binary of the first new enough `node` package in `folder` or above it, or undefined. */
function findInstalledNode(folder) {
  const home = join(folder, 'node_modules', 'node');
  const binary = join(home, 'bin', process.platform === 'win32' ? 'node.exe' : 'node');
  // The package's install script fetches the binary; where scripts were refused it is not there.
  if (existsSync(join(home, 'package.json')) && existsSync(binary)) {
    const { version } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
    if (readMajor(String(version)) >= requiredMajor) return binary;
  }
  const parent = dirname(folder);
  return parent === folder ? undefined : findInstalledNode(parent);
}

/**
 * Runs this file again with another Node and ends as that process ends. The two share a terminal:
 * Ctrl-C reaches both, so the child may see a signal twice, and this process outlives the child.
 */
function runInstalledNode(binary) {
  // The channel carries no message. It is there to break when this process is killed (see runHere).
  const child = spawn(binary, [thisFile, ...process.argv.slice(2)], {
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
  });
  const forward = (signal) => child.kill(signal);
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  for (const signal of signals) process.on(signal, forward);

  child.on('error', (error) => complain([`cannot start ${binary}: ${error.message}`]));
  child.on('exit', (code, signal) => {
    for (const each of signals) process.removeListener(each, forward);
    // Also for a signal: the first process of a container survives those that it sends to itself.
    process.exitCode = signal === null ? code : 128 + constants.signals[signal];
    if (signal !== null) process.kill(process.pid, signal);
  });
}

// By default Node opens its debugger on SIGUSR1, to every user of the machine; scripts that rotate logs send this signal.
process.on('SIGUSR1', () => {});

if (readMajor(process.versions.node) >= requiredMajor) {
  void runHere();
} else {
  const binary = findInstalledNode(process.cwd()) || findInstalledNode(dirname(thisFile));
  if (binary === undefined) {
    complain([
      `needs Node ${requiredMajor} or newer; this is Node ${process.versions.node} (${process.execPath})`,
      `run \`npm install node@${requiredMajor}\` here, or install Node ${requiredMajor}`,
    ]);
  } else {
    runInstalledNode(binary);
  }
}
