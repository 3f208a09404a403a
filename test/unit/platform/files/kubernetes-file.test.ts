// The login of the Kubernetes engine is checked before the platform starts.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { checkKubernetesLogin } from '../../../../src/platform/files/kubernetes-file.ts';

function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

it('accepts a kubeconfig file, or a service account', () => {
  const file = join(temporaryFolder(), 'config');
  writeFileSync(file, '');
  expect(() => checkKubernetesLogin(file)).not.toThrow();
  expect(() => checkKubernetesLogin(undefined, file)).not.toThrow();
});

it('names a kubeconfig file that does not exist', () => {
  const missing = join(temporaryFolder(), 'config');
  expect(() => checkKubernetesLogin(missing)).toThrow(missing);
});

it('asks for a kubeconfig file outside of a cluster', () => {
  const missing = join(temporaryFolder(), 'token');
  expect(() => checkKubernetesLogin(undefined, missing)).toThrow(
    'is required outside of a cluster; give the path of a kubeconfig file',
  );
});
