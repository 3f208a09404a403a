// Containers with a network and a file system of their own, made of Linux namespaces: for tests that need what a container
// runtime gives. Needs root, and the programs of util-linux and iproute2.
import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { PodPlace, PodRuntime } from '../../support/kubernetes/kubelet/pod-runtime.ts';

const run = promisify(execFile);

/**
 * A root directory of its own: the programs of this machine, the repository as /app, and the volumes. Then the program, as
 * the user.
 */
const ENTER = `
set -eu
root=$1 repository=$2 hosts=$3 user=$4 groups=$5 mode=$6 mounts=$7
shift 7
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"
for each in /*; do
  case $each in /tmp|/etc|/var|/data|/app|/run) continue ;; esac
  if [ -L "$each" ]; then cp -P "$each" "$root/"
  elif [ -d "$each" ]; then mkdir "$root$each"; mount --rbind "$each" "$root$each"; fi
done
mkdir -p "$root/etc" "$root/app" "$root/var" "$root/run"
mkdir -m 1777 "$root/tmp"
cp -a /etc/passwd /etc/group "$root/etc/"
for each in ld.so.cache ssl; do [ -e "/etc/$each" ] && cp -a "/etc/$each" "$root/etc/"; done
echo 'hosts: files' > "$root/etc/nsswitch.conf"
touch "$root/etc/hosts"
mount --bind "$hosts" "$root/etc/hosts"
mount --bind "$repository" "$root/app"
while read -r source path access; do
  [ -n "$source" ] || continue
  mkdir -p "$root$path"
  mount --bind "$source" "$root$path"
  if [ "$access" = ro ]; then mount -o remount,bind,ro "$root$path"; fi
done < "$mounts"
if [ "$mode" = ro ]; then mount -o remount,ro "$root"; fi
exec chroot --userspec="$user" --groups="$groups" "$root" /bin/sh -c 'cd /app && exec "$@"' sh "$@"
`;

/** Undefined: this machine can make them. */
export function findSandboxTrouble(): string | undefined {
  if (process.getuid?.() !== 0) return 'it makes namespaces, which needs root';
  try {
    execFileSync('unshare', ['-m', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt'], { stdio: 'ignore' });
    execFileSync('unshare', ['-n', 'ip', 'link', 'add', 'v0', 'type', 'veth'], { stdio: 'ignore' });
    return undefined;
  } catch {
    return 'this machine makes no namespaces: it needs root, unshare and ip';
  }
}

export class Sandbox implements PodRuntime {
  readonly #folder = mkdtempSync(join(tmpdir(), 'millrace-sandbox-'));
  readonly #repository: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly #subnet = `10.213.${1 + Math.floor(Math.random() * 250)}`;
  /** Also the beginning of the names of its networks. */
  readonly #bridge = `mr${process.pid % 100_000}`;
  readonly #servers = new Set<Server>();
  readonly #sockets = new Set<Socket>();
  #last = 1;

  /** `repository`: the folder that containers see as /app. `env`: variables of all of them. */
  constructor(repository: string, env: Readonly<Record<string, string>>) {
    this.#repository = repository;
    this.#env = env;
    this.setHosts([]);
  }

  async start(): Promise<void> {
    await run('ip', ['link', 'add', this.#bridge, 'type', 'bridge']);
    await run('ip', ['addr', 'add', `${this.gateway}/24`, 'dev', this.#bridge]);
    await run('ip', ['link', 'set', this.#bridge, 'up']);
    await this.#changeFirewall('-I');
  }

  /** Docker's firewall drops what containers of other bridges send to each other. Without iptables there is no such rule. */
  async #changeFirewall(action: '-I' | '-D'): Promise<void> {
    const rule = ['FORWARD', '-i', this.#bridge, '-o', this.#bridge, '-j', 'ACCEPT'];
    await run('iptables', [action, ...rule]).catch(() => {});
  }

  /** Address of this machine for containers. */
  get gateway(): string {
    return `${this.#subnet}.1`;
  }

  get #hosts(): string {
    return join(this.#folder, 'hosts');
  }

  /** The names that all containers resolve, in place: they have the file mounted. */
  setHosts(names: readonly (readonly [name: string, address: string])[]): void {
    const lines = names.map(([name, address]) => `${address} ${name}\n`);
    writeFileSync(this.#hosts, ['127.0.0.1 localhost\n', ...lines].join(''));
  }

  /** Listens for containers at an address of this machine. @returns the function that ends it */
  async serve(
    { address, port }: { address: string; port: number },
    choose: () => { host: string; port: number } | undefined,
  ): Promise<() => void> {
    if (address !== this.gateway) {
      await run('ip', ['addr', 'add', `${address}/32`, 'dev', this.#bridge]).catch(() => {});
    }
    const server = createServer((socket) => {
      const target = choose();
      if (target) this.#join(socket, connect(target));
      else socket.destroy();
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, address, resolve);
    });
    this.#servers.add(server);
    return () => {
      server.close();
      this.#servers.delete(server);
    };
  }

  async open({ uid, spec }: Parameters<PodRuntime['open']>[0]): Promise<PodPlace> {
    const number = ++this.#last;
    const ip = `${this.#subnet}.${number}`;
    const name = `${this.#bridge}-${number}`;
    await run('ip', ['netns', 'add', name]);
    const inside = (...args: string[]) => run('ip', ['-n', name, ...args]);
    const outer = `${this.#bridge}v${number}`;
    await run('ip', [
      ...['link', 'add', outer, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name],
    ]);
    await run('ip', ['link', 'set', outer, 'master', this.#bridge, 'up']);
    await inside('addr', 'add', `${ip}/24`, 'dev', 'eth0');
    await inside('link', 'set', 'eth0', 'up');
    await inside('link', 'set', 'lo', 'up');
    await inside('route', 'add', 'default', 'via', this.gateway);
    const { runAsUser = 0, runAsGroup = runAsUser, fsGroup } = spec.securityContext;
    const root = join(this.#folder, uid);
    return {
      ip,
      env: this.#env,
      enter: (command, { isReadOnly, mounts }) => {
        const list = join(this.#folder, `${uid}.mounts`);
        const lines = mounts.map(
          ({ isReadOnly: only, path, source }) => `${source} ${path} ${only ? 'ro' : 'rw'}\n`,
        );
        writeFileSync(list, lines.join(''));
        execFileSync('mkdir', ['-p', root]);
        const user = `${runAsUser}:${runAsGroup}`;
        const groups = `${fsGroup ?? runAsGroup}`;
        const terms = [root, this.#repository, this.#hosts, user, groups];
        const script = ['-c', ENTER, 'sh', ...terms, isReadOnly ? 'ro' : 'rw', list, ...command];
        return ['nsenter', `--net=/run/netns/${name}`, 'unshare', '-m', 'sh', ...script];
      },
      close: () => {
        run('ip', ['netns', 'del', name]).catch(() => {});
      },
    };
  }

  async close(): Promise<void> {
    for (const server of this.#servers) server.close();
    for (const socket of this.#sockets) socket.destroy();
    for (let number = 2; number <= this.#last; number++) {
      await run('ip', ['netns', 'del', `${this.#bridge}-${number}`]).catch(() => {});
    }
    await this.#changeFirewall('-D');
    await run('ip', ['link', 'del', this.#bridge]);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #join(socket: Socket, target: Socket): void {
    for (const each of [socket, target]) {
      this.#sockets.add(each);
      each.on('error', () => {});
      each.once('close', () => this.#sockets.delete(each));
    }
    socket.once('close', () => target.destroy());
    target.once('close', () => socket.destroy());
    socket.pipe(target).pipe(socket);
  }
}
