// The files of deploy/ are those that the pages below docs/operations print.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { EXIT } from '../../../src/cli/command.ts';

const page = readFileSync('docs/operations/systemd.md', 'utf8');
const [platform = '', worker = ''] = [
  ...page.matchAll(/^```\n(\[(?:Unit|Service)\].*?)^```/gms),
].map(([, block = '']) => block);

it('prints the unit of deploy/millrace.service', () => {
  expect(readFileSync('deploy/millrace.service', 'utf8')).toMatch(/^# .*\n\[Unit\]/);
  expect(readFileSync('deploy/millrace.service', 'utf8').endsWith(`\n${platform}`)).toBe(true);
});

it('leaves their temporary folders to processes that outlive the platform', () => {
  expect(platform).toContain('\nKillMode=process\n');
  // systemd removes a PrivateTmp at each stop.
  expect(platform).not.toContain('PrivateTmp=yes');
  expect(platform).toMatch(/^BindPaths=\S+:\/tmp \S+:\/var\/tmp$/m);
});

it('prints the section of deploy/millrace-worker.service, whose others are those of the platform', () => {
  const unit = readFileSync('deploy/millrace-worker.service', 'utf8');
  expect(worker).toContain('KillMode=mixed');
  expect(unit).toContain(worker);
  const { notLoaded, refused, unfit, usage } = EXIT;
  const final = [usage, unfit, notLoaded, refused].join(' ');
  expect(unit).toContain(`\nRestartPreventExitStatus=${final}\n`);
  for (const line of ['WantedBy=multi-user.target', 'After=network-online.target']) {
    expect(platform).toContain(line);
    expect(unit).toContain(line);
  }
});

it('prints the file deploy/nginx-platform.conf', () => {
  const [, printed = ''] =
    /^```\n(map .*?)^```/ms.exec(readFileSync('docs/operations/reverse-proxy.md', 'utf8')) ?? [];
  expect(printed).toContain('proxy_buffering off');
  expect(readFileSync('deploy/nginx-platform.conf', 'utf8')).toMatch(/^# .*\nmap /);
  expect(readFileSync('deploy/nginx-platform.conf', 'utf8').endsWith(`\n${printed}`)).toBe(true);
});
