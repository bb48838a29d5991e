"""What of a disk, a mount or its server tells one machine or person from another, taken out of what is recorded.

What the inventory makes of a disk holds none of it either (`StorageDeviceInfo.shareable`), so that a recording gives
the same inventory as the machine did.
"""

from __future__ import annotations

import re

_WHOLE = frozenset(
    {"serial", "wwid", "nguid", "eui", "cid", "csd", "unique_id", "subsysnqn", "hostnqn", "hostid", "vpd_pg80"}
)
"""Names of files in sysfs that hold nothing but an identity."""

_UDEV_IDENTITY = re.compile(
    r"^(?:S:.*|E:\w{0,60}(?:WWN|UUID|LABEL|DEVLINKS|ENTRY_NAME|ID_PATH)\w{0,60}=.*|E:ID_SERIAL=.*)\n?", re.M
)
_UDEV_SERIAL = re.compile(r"^(E:\w{0,60}SERIAL\w{0,60}=).*$", re.M)

_OBJECT = r"(?:s3fs|goofys|mount-s3|mountpoint-s3|gcsfuse|blobfuse2?|rclone|juicefs)"

_SERVED = r"(?:nfs4?|lustre|ceph|glusterfs|fuse\.(?:glusterfs|ceph(?:-fuse)?|sshfs))"
_OPTIONS = "addr|mountaddr|clientaddr|mon_addr|username|user|domain|credentials|name|fsname"

_MOUNTS = (
    (re.compile(rf"( - {_SERVED} )[^\s/]+:(/?)"), r"\1<host>:\2"),
    (re.compile(r"( - (?:cifs|smb3|smbfs) [/\\]{2})[^/\\\s]+"), r"\1<host>"),
    (re.compile(rf"( - fuse\.{_OBJECT} )(?!{_OBJECT}\s)\S+"), r"\1<bucket>"),
    (re.compile(rf"( - fuse {_OBJECT}[:#])\S+"), r"\1<bucket>"),
    (re.compile(rf"([, ](?:{_OPTIONS})=)[^,\s]+"), r"\1<hidden>"),
    (re.compile(r"( (?:/run)?/media/)[^/\s]+"), r"\1<user>"),
)  # fmt: skip

_PROGRAMS = (
    (re.compile(r'("(?:wwn|eui64|nguid)"\s*:\s*)\{[^}]*\}'), r"\1{}"),
    (re.compile(r'("(?:logical_unit_id|device_id_string|UniqueId)"\s*:\s*")[^"]*'), r"\1<serial>"),
    (re.compile(r'("ProviderName"\s*:\s*"\\\\\\\\)[^\\"]+'), r"\1<host>"),
    (re.compile(r"(<key>VolumeName</key>\s*<string>)[^<]*"), r"\1volume"),
    (re.compile(r"(?m)^//\S+?(/[^/\s]*) on "), r"//<host>\1 on "),
    (re.compile(r"(?m)^(?!/)[^\s/]+:(/\S*) on "), r"<host>:\1 on "),
    (re.compile(r"(mounted by )\S+?(?=[,)])"), r"\1<user>"),
)


def without_disk_identity(name: str, text: str) -> str:
    """The text of the recording's file `name` without serial numbers of disks, and names of servers and buckets."""
    if name.startswith("files/sys/") and name.rpartition("/")[2] in _WHOLE:
        return "<serial>" if text.strip() else text
    if name.endswith("/dm/uuid"):
        return re.sub(r"-.*", "-<serial>", text, count=1)
    if name.startswith("files/run/udev/data/b"):
        kept = [] if "E:ID_FS_TYPE=zfs_member" not in text else re.findall(r"(?m)^E:ID_FS_LABEL=.*$", text)
        text = _UDEV_SERIAL.sub(r"\1<serial>", _UDEV_IDENTITY.sub("", text))
        return "\n".join([text, *kept])
    if name.endswith("/mountinfo"):
        return _replaced(_MOUNTS, text)
    return _replaced(_PROGRAMS, text) if name.startswith("commands/") else text


def _replaced(patterns: tuple[tuple[re.Pattern[str], str], ...], text: str) -> str:
    for pattern, instead in patterns:
        text = pattern.sub(instead, text)
    return text
