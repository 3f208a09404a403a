#!/bin/sh
# Makes the secrets of deploy/compose.yaml and deploy/kubernetes in deploy/secrets. Leaves those that exist.
set -eu
umask 022
cd "$(dirname "$0")"
# The containers run as other users, so the files are readable; the folder is not.
mkdir -p -m 700 secrets
cd secrets

# 256 random bits, as 43 characters.
random() {
  openssl rand -base64 32 | tr '+/' '-_' | tr -d '=\n'
}

[ -s postgres-password ] || random > postgres-password
[ -s node-secret ] || random > node-secret
# Encrypts the secrets of registries; the platform wants 32 bytes in base64.
[ -s secrets-key ] || openssl rand -base64 32 > secrets-key
[ -s webhook-secrets ] || printf 'mrw_%s\n' "$(random)" > webhook-secrets
if [ ! -s keys ]; then
  worker_key="mr_$(random)"
  printf 'MILLRACE_ADMIN_KEY=mr_%s\nMILLRACE_WORKER_KEY=%s\n' "$(random)" "$worker_key" > keys
  printf 'MILLRACE_KEY=%s\n' "$worker_key" > worker.env
fi
