"""What a kernel said (Linux 6.18): whole answers for the corpora of `kernel-answers`, `rings` and `tool-answers`.

Recorded in a network namespace with a veth pair, of which one end is a bridge's port. The first byte of each input
chooses the reader, by its place in tests/fuzz/src/kernel.rs and tools.rs.
"""

from __future__ import annotations

import base64
import struct
import zlib

from tests.fuzz import frames
from tests.fuzz.machine import QUEUES_JSON

_PORT = (
    b"c-qyJJx^3Y6o%iqyL0c|b&&-Zh=Q;iK=~*@Acg=cf>>EdN2my4Q4<4!fGxMA;3rU!*i!HpXbCNyy@tZdf^I!$?hCRvix>=vo@Do#k27c9nRD)p20"
    b"$Jj41m&>{7EY%|I>LL0Rri*JOM(~;hRiY@%Eu?aPt<^jv><cVwFR9<@&>@RFtipZ+Clyct&=}uF4+z^}4-7jFB(MNpc)#l|VQ_|0%{TGEP<$sGbt"
    b"zcXE7y{Xs|HsZ-8S|6|9j%)b7-zdZF-+n(&91{|XW@lB|2Z1d#N`NV%>OOj2)bIjk8{v7%xzUSH>O(Qb0<EQe*d+pzm3@xsISbA3m-Wn@@ajp5{U"
    b"vxQ2xs}#sQfWz_49GSz<ash=E7?wF>6fFnIz-HJ4tFowKI&m2)sbgyG_c>uIQJN*Kt7~j2m3{`lk6f(RW)X%)?@ZlPt&D)YsR5HZ?{~GTij>;c0("
    b"^G#3R;yFUR}Xk8eFEs#aFlHp`o345l7nM@F|%ooJKz;S&GW@^VytCz7V|_q;4KhNvKV_4_(FX~y<$yyge%M!$G{OOiVEi`=XK6+arwAexP9XwCz("
    b"SG{K8^lGi9hHi7ke69P5zCZo#ytBBJ-C0$C(r?71n9-YCGKX*e(f8-N8v9e-6H?>B4fiP2SgG%bT9>>D*I63RqcmPdKLHW?RM`"
)
"""RTM_NEWLINK of the bridge's port."""

_FEATURES = (
    b"c-rk(=~CM;5Ee-&P|k86p+Iq4w~gCCQ+gk7(h-VcdvI)ztN{I09<GnT19fFfmP`Uw{&rvnM%I2>?YF0BJwj*=Av6KM2fq=Tg~ckGxSEEYI_yoM8j"
    b"6n)a%XC=S3^HwuQ^k{awSImtiwLP^fH1ur_A#)4=98E254|3P9WC`90@2n%LaWfOwT*wyt=Oj>&g5tLM_9FouPA{Ph-kLQoW-w`i>K!uPHH;u$}`"
    b"<5c)y4kMr|wDSH62y-{4e9>abVX1ushai7xM&m$ar!G#yb8D$(*ansT+rg14|8ATGeFL5*Qy<*^cVZ?<amHc7us~XCMB*0NbW1n_QU(Mz`b9<zJy"
    b"o~yN8gtCUB+l<rzMeCDt@h@PJ>{<jSkD$V`79~y-ITILEsKOq@m+%b&B6{&(qS7EA4om4EbYw_k0qxA;o_3dvgRZ7P!bR8>PYO0$X|`^<JgaA*sU"
    b"Ir{#N=|;d`q*b21XEIIU@Hk0f*mt8nX@yU*yby(-r>0Jp1gMC9sSwr=V=2-C|j?c6|{*sUAblRL26+Q)-#`jf}e?LOYoK33RU?N%{v%AA%lhP>w?"
    b"j!@}`U63Ej7!2Z=MjoU65n7eKk98a}!qbs=tA4PjV?nbUP?huhM$W4k9_Vwx^Y;9G0=Om3EpHHJj1P4`5jlwo8A{<wjyalJ*}w8+BaE2#Jsr{Kgf"
    b"njPf2R9R%m-;i%Z{S!`#G!^3rv8sAdG$8Z(PZb>3b^rU&ww0cEkz6fbmF@{>m{*|4YEk113t6^c0gbl>4@jz0&=oM>4(N()-ZkbnHEy*Le%fIQGq"
    b"^Yv%Q9z-}A8RAE))HF>;|@vdN{tCTO=GLNHUuXoY)l3p)La98{4NcJ+gf)gz+<;U{8NJPMt02R}>lADl=xQdvXIK`_YbBf6tENUiA7}r?E>z$fUQ"
    b"6_YOT5XrYoK!K)#Hbj)hxI}^0{~|5`k;EaJWol&Ox_=L4vDj6ji~!S$@}}5WRz4Wmz+QASc-ZSdU^@Fz^t36YenA|8OtDJo(Lo4MyXL@z5-^$z_9"
    b"*sJip1@78o<&O8(uDcL!-HzpmG>8u`pG-b#Pq+p%~nxt8yp&0F3vtufv(j>Y@Mv3R?<mhTS7;$7fc&iwY6^WL?b^^V2-ZjCX!UCX)cTFz|Oa$dK`"
    b"oYk)7Ty-pFWAl!=*cxLdIu>)TdB==$E$4-6IV-N~jr*Fuuj%`m{*P+9gC;9A?V$SAzy8nu3x9l<ng"
)
"""The features of the veth, by ETHTOOL_MSG_FEATURES_GET."""

_ADDRESS = (
    "4c0000001400020001000000ed7d0000020880fe01000000080001007f000001080002007f000001070003006c6f000008000800800000001400\
0600ffffffffffffffffd4cd1600d4cd1600"
)
_ROUTE = (
    "500000001800020001000000217f000002100000fe0300010000000008000f00fe000000080001000a0900002400090010000000040000000800\
05000a0000021000000004000000080005000a000003"
)
_ERROR = "340000000200000001000000ed7d0000edffffff20000000120001000100000000000000000000000f2700000000000000000000"
_MODES = (
    "580000001500000001000000217f000004010000140001800800010003000000070002006e31000005000200000000001000038008000200790000\
00040003800800050010270000050006000100000005000a0000000000"
)
_TCP_INFO = (
    "010000000007aa01e01c0300000000000080000018020000000000000000000000000000000000000000000000000000000000000000000000\
000000ffff0000d7ff0000170000000d000000ffffff7f0b000000cbff00000300000000000000d7ff000000000000eaf50d6108000000ffffffffffff\
ffff650000000000000000000000000000000300000002000000000000000800000000000000010000000000"
)
_MOUNTS = b"""27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
_DEVICES = b"""Inter-|   Receive                                              |  Transmit
 face |bytes   packets errs drop fifo frame compressed multicast|bytes   packets errs drop fifo colls carrier compressed
    lo:      0       0    0    0    0     0          0         0       0       0    0    0    0     0       0          0
    n1:     90       1    0    0    0     0          0         0     458       5    0    0    0     0       0          0
"""
_PACKETS = b"""sk               RefCnt Type Proto  Iface R Rmem   User   Inode
000000001861c4cc 3      3    05f7   2     1 0      0      5718007
"""


def _whole(recorded: bytes) -> bytes:
    return zlib.decompress(base64.b85decode(recorded))


def answers() -> list[bytes]:
    """Return whole inputs of `kernel-answers`."""
    hexadecimal = bytes.fromhex
    message = struct.pack("<Qii", 64, 1, 37) + struct.pack("<qqqqqq", 1_795_000_000, 5, 0, 0, 1_795_000_037, 7)
    reply = frames.v4(frames.ICMP, frames.echo(0, bytes(18)))
    some = [
        (0, _whole(_PORT) + hexadecimal(_ADDRESS)),
        (0, hexadecimal(_ROUTE)),
        (0, hexadecimal(_ERROR)),
        (1, _whole(_FEATURES)),
        (1, hexadecimal(_MODES)),
        (2, message),
        (3, _DEVICES),
        (4, _PACKETS),
        (5, b"32294 (cat) Z 32224 32220 631 0 -1 4194304 74 0 0 0 0 0 0 0 30 10 1 0 1494537 3133440 366\n"),
        (6, b"         0     100000      65536\n"),
        (7, b"32294"),
        (8, b"pos:\t0\nflags:\t02000000\nlink_type:\ttcx\nlink_id:\t12\nprog_id:\t7\nifindex:\t3\n"),
        (9, b"0-1\n"),
        (10, _MOUNTS),
        (11, hexadecimal(_TCP_INFO)),
        (12, bytes([20, 255]) + reply),
        (13, b"monotonic           0         1\nboottime            0         0\n"),
    ]
    return [bytes([place]) + octets for place, octets in some]


def rings() -> list[bytes]:
    """Return whole inputs of `rings`."""
    some = frames.frames()
    large = frames.large()[0]

    def laid(frame: bytes, undone: bytes = bytes(10), status: int = 0) -> bytes:
        padded = (frame + bytes(-len(frame) % 8)).ljust(64, b"\0")
        head = struct.pack("<6IHH4x", 96 + len(padded), 1_795_000_000, 5, len(frame), len(frame), status, 96, 82)
        vlan = struct.pack("<IHH", 7, 0x8100, 0)
        return (head + vlan).ljust(86, b"\0") + undone + padded

    def block(*of: bytes) -> bytes:
        return struct.pack("<IIIII28x", 1, 0, 1, len(of), 48) + b"".join(of)

    def record(frame: bytes, flags: int) -> bytes:
        return struct.pack("<qIIHHHHII", 5, len(frame), len(frame), 0x81, 7, 34, 6, flags, 0) + frame

    inputs = [
        (0, block(*(laid(one) for one in some[:4]))),
        (0, block(laid(some[1], struct.pack("<BBHHHH", 1, 0, 0, 0, 34, 6), 0x50))),
        (1, record(some[2], 1)),
        (1, record(some[3], 12)),
        (2, bytes([0, 0, 0, 0, 0]) + bytes(10) + some[4]),
        (2, bytes([1, 0x81, 0, 0, 7]) + struct.pack("<BBHHHH", 1, 1, 54, 1448, 34, 16) + large),
        (3, struct.pack("<I4sq", 0x534F4A42, b"\x81\0\0\x07", 7) + some[5]),
        (4, bytes(7) + b"\x07" + struct.pack("<II", 3, 1) + bytes([0, 0, 8, 1, 112, 0, 8, 5, 8, 2, 8, 255])),
        (5, b"10.0.0.0/8 10.255.0.1"),
        (5, b"02:77:00:00:01:02 02:77:00:00:01:02"),
        (6, struct.pack("<Q", 1518)),
    ]
    return [bytes([place]) + octets for place, octets in inputs]


def tools() -> list[bytes]:
    """Return whole inputs of `tool-answers`."""
    report = (
        b'{"ready":{"left":"n1","right":"n2"},"report":{"pipes":[{"name":"both","arrived":4,"sent":4}],'
        b'"ports":[{"name":"n1","engine":"AF_PACKET","received":4,"sent":0}]},"config":{"pipes":[{"name":"both"}]}}'
    )
    inputs = [
        (0, QUEUES_JSON),
        (0, b'[{"kind":"netem","handle":"5abc:","root":true,"refcnt":2,"options":{"limit":1000}}]'),
        (1, b'{"boot":"9c1d","namespace":4026531840,"index":3,"port":"n2","handle":"5abc:"}'),
        (2, b'[{"path_delay_ns":21000,"frames":null},"AF_PACKET"]'),
        (3, b"kernel/net/ipv4/tcp_htcp.ko.zst:\nkernel/net/ipv4/tcp_bbr.ko.zst: kernel/lib/a.ko.zst\n"),
        (4, b'{"do":"begin","block":3,"keep":true}\n{"do":"show"}\n'),
        (5, b'{"error":"no such pipe"}\n'),
        (6, report),
        (8, b"udp port 53 and not ether proto 35020"),
        (8, b"host 10.0.0.1 or ip6 net fd77::/16"),
    ]
    return [bytes([place]) + octets for place, octets in inputs]
