; Entry points with scalar arguments over NCCL's device functions, for Triton's extern_elementwise; text, so that no
; compiler but Triton's is needed. Triton calls a function in every thread of a thread block: each entry point acts for
; the whole block, its first thread once, between the block's own barriers. So stores before a put belong to it.
; Linked together with libnccl_device.bc of nvidia-nccl-cu13 2.32.3 (nccl_device/gin.h there has the signatures).
; 4 = 1 << NCCL_NET_DEVICE_GIN_PROXY: only that backend is kept, whose puts a thread of the host carries out.
target datalayout = "e-i64:64-i128:128-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
%struct.ncclTeam = type { i32, i32, i32 }
%"struct.ncclCoopAny::Storage" = type { [16 x i8] }
%struct.ncclCoopAny = type { %"struct.ncclCoopAny::Storage", ptr }

declare void @ncclGin_C_init(ptr, i32, ptr, i32)
declare %struct.ncclTeam @ncclTeamWorld(ptr)
declare void @ncclCoopAnyInitCta(ptr)
declare void @ncclGinPut_v3(ptr, ptr byval(%struct.ncclTeam), i32, ptr, i64, ptr, i64, i64, i32, ptr, i64, i32, i1 zeroext, i32, i64, i1 zeroext, i32, ptr byval(%struct.ncclCoopAny), i1 zeroext, ptr, i32, i32, i32, i32)
declare i32 @ncclGinWaitSignalTimeout(ptr, ptr byval(%struct.ncclCoopAny), i32, i64, i32, i32, i64)
declare i64 @ncclGinReadSignal(ptr, i32, i32, i32)
declare i32 @ncclGinFlushTimeout(ptr, ptr byval(%struct.ncclCoopAny), i32, i1 zeroext, ptr, i64)

; Puts %bytes from (%source, %from) to (%target, %to) of rank %peer, then adds 1 to its signal: a weak signal, which
; orders this put and no other. Arguments after the signal: no counter, no descriptor, the block's stores given as those
; of threads (10) and required to be visible to the device (1).
define i32 @overlap_gin_put(i64 %at, i32 %context, i32 %peer, i64 %target, i64 %to, i64 %source, i64 %from, i64 %bytes, i32 %signal) alwaysinline {
  %communicator = inttoptr i64 %at to ptr
  %target_window = inttoptr i64 %target to ptr
  %source_window = inttoptr i64 %source to ptr
  %gin = alloca [64 x i8], align 8
  %block = alloca %struct.ncclCoopAny, align 8
  %team = alloca %struct.ncclTeam, align 4
  call void @ncclGin_C_init(ptr %gin, i32 4, ptr %communicator, i32 %context)
  call void @ncclCoopAnyInitCta(ptr %block)
  %world = call %struct.ncclTeam @ncclTeamWorld(ptr %communicator)
  store %struct.ncclTeam %world, ptr %team
  call void @ncclGinPut_v3(ptr %gin, ptr byval(%struct.ncclTeam) %team, i32 %peer, ptr %target_window, i64 %to, ptr %source_window, i64 %from, i64 %bytes, i32 2, ptr null, i64 0, i32 %signal, i1 zeroext false, i32 0, i64 1, i1 zeroext false, i32 0, ptr byval(%struct.ncclCoopAny) %block, i1 zeroext false, ptr null, i32 10, i32 1, i32 0, i32 0)
  ret i32 0
}

; 0 once the signal is at least %least, 1 after %cycles without it: the same answer in every thread. The outcome is known
; to the first thread only, and the barrier hands it to all. 64: bits that count; 2: acquire.
define i32 @overlap_gin_pending(i64 %at, i32 %context, i32 %signal, i64 %least, i64 %cycles) alwaysinline {
  %communicator = inttoptr i64 %at to ptr
  %gin = alloca [64 x i8], align 8
  %block = alloca %struct.ncclCoopAny, align 8
  call void @ncclGin_C_init(ptr %gin, i32 4, ptr %communicator, i32 %context)
  call void @ncclCoopAnyInitCta(ptr %block)
  %result = call i32 @ncclGinWaitSignalTimeout(ptr %gin, ptr byval(%struct.ncclCoopAny) %block, i32 %signal, i64 %least, i32 64, i32 2, i64 %cycles)
  %late = call i32 asm sideeffect "{ .reg .pred p, q; setp.ne.s32 p, $1, 0; bar.red.or.pred q, 0, p; selp.s32 $0, 1, 0, q; }", "=r,r,~{memory}"(i32 %result) convergent
  ret i32 %late
}

; The signal's value, as this thread reads it.
define i64 @overlap_gin_signal(i64 %at, i32 %context, i32 %signal) alwaysinline {
  %communicator = inttoptr i64 %at to ptr
  %gin = alloca [64 x i8], align 8
  call void @ncclGin_C_init(ptr %gin, i32 4, ptr %communicator, i32 %context)
  %value = call i64 @ncclGinReadSignal(ptr %gin, i32 %signal, i32 64, i32 2)
  ret i64 %value
}

; 0 once the sources of all puts of this context may be overwritten, 1 after %cycles: the same answer in every thread.
define i32 @overlap_gin_unsent(i64 %at, i32 %context, i64 %cycles) alwaysinline {
  %communicator = inttoptr i64 %at to ptr
  %gin = alloca [64 x i8], align 8
  %block = alloca %struct.ncclCoopAny, align 8
  call void @ncclGin_C_init(ptr %gin, i32 4, ptr %communicator, i32 %context)
  call void @ncclCoopAnyInitCta(ptr %block)
  %result = call i32 @ncclGinFlushTimeout(ptr %gin, ptr byval(%struct.ncclCoopAny) %block, i32 2, i1 zeroext false, ptr null, i64 %cycles)
  %late = call i32 asm sideeffect "{ .reg .pred p, q; setp.ne.s32 p, $1, 0; bar.red.or.pred q, 0, p; selp.s32 $0, 1, 0, q; }", "=r,r,~{memory}"(i32 %result) convergent
  ret i32 %late
}
