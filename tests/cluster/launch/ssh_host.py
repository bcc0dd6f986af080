"""A host that is reached over SSH: a real server on loopback that runs each command here, with a home of its own.

`python ssh_host.py HOME KEY` prints its port and serves until its standard input is closed. KEY: the public one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

import asyncssh


async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """In a session of its own, which ends with the connection, as sshd has it."""
    environment = os.environ | {"HOME": sys.argv[1]}
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_shell(
        str(process.command), stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=sys.argv[1],
        start_new_session=True,
    )  # fmt: skip
    await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
    ended = asyncio.create_task(child.wait())
    await asyncio.wait([ended, asyncio.create_task(process.wait_closed())], return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        await process.stdout.drain()
        process.exit(ended.result())
    else:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


async def main() -> None:
    """One server, for whoever has the key."""
    key = asyncssh.import_public_key(sys.argv[2])
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")], encoding=None,
        authorized_client_keys=asyncssh.import_authorized_keys(key.export_public_key().decode()), process_factory=run,
    )  # fmt: skip
    print(server.get_port(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
