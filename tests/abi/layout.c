/* The layout of every public struct and the value of every public constant, as version 0.1 shipped them: compiling this file
 * is the test. A program that was compiled then must work with the library of today, so that a line here is never changed; a
 * struct that grows at its end changes only its SIZE line, where it starts with struct_size. Frozen structs (twh_operand,
 * twh_sequence) never do. For LP64 machines (x86-64, aarch64); elsewhere nothing is claimed. */
#include "layout.h"
#include "twoheads.h"
#include "twoheads_blis.h"

VALUE(TWH_OK, 0);
VALUE(TWH_E_ARGUMENT, -1);
VALUE(TWH_E_MEMORY, -2);
VALUE(TWH_E_OVERFLOW, -3);
VALUE(TWH_E_VERSION, -4);
VALUE(TWH_E_UNSUPPORTED, -5);
VALUE(TWH_E_ORACLE, -6);
VALUE(TWH_E_CANCELLED, -7);
VALUE(TWH_E_RESULT, -8);
VALUE(TWH_E_PLUGIN, -9);
VALUE(TWH_E_HOOK, -10);
VALUE(TWH_F32, 1);
VALUE(TWH_F16, 2);
VALUE(TWH_BF16, 3);
VALUE(TWH_F64, 4);
VALUE(TWH_BOOL, 5);
VALUE(TWH_LOG_WARNING, 1);
VALUE(TWH_LOG_INFO, 2);
VALUE(TWH_MASK_NONE, 1);
VALUE(TWH_MASK_CAUSAL, 2);
VALUE(TWH_MASK_TENSOR, 4);
VALUE(TWH_ORACLE_LSE, 1);
VALUE(TWH_ORACLE_LSE_BASE2, 2);
VALUE(TWH_ORACLE_EMPTY_LSE_POS_INF, 4);
VALUE(TWH_ORACLE_STRIDED, 8);
VALUE(TWH_ORACLE_FEWER_ROWS, 16);
VALUE(TWH_ORACLE_FEWER_KEYS, 32);
VALUE(TWH_ORACLE_FEWER_SLOTS, 64);
VALUE(TWH_ORACLE_SCALE_PER_CALL, 128);
VALUE(TWH_ORACLE_F16_SCORES, 256);
VALUE(TWH_CHECK_HOLDS, 0);
VALUE(TWH_CHECK_UNTRUE, 1);
VALUE(TWH_CHECK_SKIPPED, 2);
VALUE(TWH_CAUSAL, 1);
VALUE(TWH_LEFT, 2);
VALUE(TWH_RIGHT, 4);
VALUE(TWH_PROBLEM_SCALE, 1);
VALUE(TWH_PROBLEM_KEY_BIAS, 2);
VALUE(TWH_PROBLEM_ALIBI, 4);
VALUE(TWH_PLAN_MEASURE, 1);
VALUE(TWH_SHAPE_FULL, 0);
VALUE(TWH_SHAPE_LOWER, 1);
VALUE(TWH_SHAPE_UPPER, 2);
VALUE(TWH_SHAPE_BAND, 3);
VALUE(TWH_RUN_CHECKED, 1);
VALUE(TWH_MERGE_EMPTY_POS_INF, 1);

#if defined(__LP64__)

SIZE(twh_error, 264);
FIELD(twh_error, struct_size, 0, 4);
FIELD(twh_error, status, 4, 4);
FIELD(twh_error, oracle_code, 8, 4);
FIELD(twh_error, slot, 12, 4);
FIELD(twh_error, call, 16, 8);
FIELD(twh_error, row, 24, 8);
FIELD(twh_error, message, 32, 232);

SIZE(twh_tensor, 40);
FIELD(twh_tensor, struct_size, 0, 4);
FIELD(twh_tensor, dtype, 4, 4);
FIELD(twh_tensor, data, 8, 8);
FIELD(twh_tensor, batch_stride, 16, 8);
FIELD(twh_tensor, head_stride, 24, 8);
FIELD(twh_tensor, row_stride, 32, 8);

SIZE(twh_context_desc, 56);
FIELD(twh_context_desc, struct_size, 0, 4);
FIELD(twh_context_desc, flags, 4, 4);
FIELD(twh_context_desc, allocate, 8, 8);
FIELD(twh_context_desc, release, 16, 8);
FIELD(twh_context_desc, log, 24, 8);
FIELD(twh_context_desc, parallel_for, 32, 8);
FIELD(twh_context_desc, user, 40, 8);
FIELD(twh_context_desc, parallelism, 48, 8);

SIZE(twh_operand, 32);
FIELD(twh_operand, data, 0, 8);
FIELD(twh_operand, slot_stride, 8, 8);
FIELD(twh_operand, row_stride, 16, 8);
FIELD(twh_operand, id, 24, 8);

SIZE(twh_call, 224);
FIELD(twh_call, struct_size, 0, 4);
FIELD(twh_call, mask_mode, 4, 4);
FIELD(twh_call, index, 8, 8);
FIELD(twh_call, slots, 16, 8);
FIELD(twh_call, q_len, 24, 8);
FIELD(twh_call, k_len, 32, 8);
FIELD(twh_call, q, 40, 32);
FIELD(twh_call, k, 72, 32);
FIELD(twh_call, v, 104, 32);
FIELD(twh_call, mask, 136, 32);
FIELD(twh_call, scale, 168, 8);
FIELD(twh_call, out, 176, 8);
FIELD(twh_call, out_slot_stride, 184, 8);
FIELD(twh_call, out_row_stride, 192, 8);
FIELD(twh_call, lse, 200, 8);
FIELD(twh_call, lse_slot_stride, 208, 8);
FIELD(twh_call, execute, 216, 8);

SIZE(twh_oracle_desc, 272);
FIELD(twh_oracle_desc, struct_size, 0, 4);
FIELD(twh_oracle_desc, flags, 4, 4);
FIELD(twh_oracle_desc, slots, 8, 8);
FIELD(twh_oracle_desc, q_len, 16, 8);
FIELD(twh_oracle_desc, k_len, 24, 8);
FIELD(twh_oracle_desc, qk_dim, 32, 8);
FIELD(twh_oracle_desc, v_dim, 40, 8);
FIELD(twh_oracle_desc, dtype, 48, 4);
FIELD(twh_oracle_desc, out_dtype, 52, 4);
FIELD(twh_oracle_desc, mask_dtype, 56, 4);
FIELD(twh_oracle_desc, mask_modes, 60, 4);
FIELD(twh_oracle_desc, causal_offset, 64, 8);
FIELD(twh_oracle_desc, scale, 72, 8);
FIELD(twh_oracle_desc, softcap, 80, 8);
FIELD(twh_oracle_desc, mask_value, 88, 8);
FIELD(twh_oracle_desc, q_slot_stride, 96, 8);
FIELD(twh_oracle_desc, k_slot_stride, 104, 8);
FIELD(twh_oracle_desc, v_slot_stride, 112, 8);
FIELD(twh_oracle_desc, out_slot_stride, 120, 8);
FIELD(twh_oracle_desc, q_row_stride, 128, 8);
FIELD(twh_oracle_desc, k_row_stride, 136, 8);
FIELD(twh_oracle_desc, v_row_stride, 144, 8);
FIELD(twh_oracle_desc, out_row_stride, 152, 8);
FIELD(twh_oracle_desc, q_len_min, 160, 8);
FIELD(twh_oracle_desc, q_len_step, 168, 8);
FIELD(twh_oracle_desc, k_len_min, 176, 8);
FIELD(twh_oracle_desc, k_len_step, 184, 8);
FIELD(twh_oracle_desc, alignment, 192, 8);
FIELD(twh_oracle_desc, max_calls_per_batch, 200, 8);
FIELD(twh_oracle_desc, max_concurrent_batches, 208, 8);
FIELD(twh_oracle_desc, cost_per_call, 216, 8);
FIELD(twh_oracle_desc, cost_per_batch, 224, 8);
FIELD(twh_oracle_desc, run, 232, 8);
FIELD(twh_oracle_desc, submit, 240, 8);
FIELD(twh_oracle_desc, wait, 248, 8);
FIELD(twh_oracle_desc, release, 256, 8);
FIELD(twh_oracle_desc, user, 264, 8);

SIZE(twh_pattern, 32);
FIELD(twh_pattern, struct_size, 0, 4);
FIELD(twh_pattern, flags, 4, 4);
FIELD(twh_pattern, left, 8, 8);
FIELD(twh_pattern, right, 16, 8);
FIELD(twh_pattern, sink_tokens, 24, 8);

SIZE(twh_sequence, 48);
FIELD(twh_sequence, q_begin, 0, 8);
FIELD(twh_sequence, q_len, 8, 8);
FIELD(twh_sequence, k_begin, 16, 8);
FIELD(twh_sequence, k_len, 24, 8);
FIELD(twh_sequence, q_offset, 32, 8);
FIELD(twh_sequence, k_offset, 40, 8);

SIZE(twh_problem, 112);
FIELD(twh_problem, struct_size, 0, 4);
FIELD(twh_problem, flags, 4, 4);
FIELD(twh_problem, batch, 8, 8);
FIELD(twh_problem, q_heads, 16, 8);
FIELD(twh_problem, kv_heads, 24, 8);
FIELD(twh_problem, q_len, 32, 8);
FIELD(twh_problem, k_len, 40, 8);
FIELD(twh_problem, q_offset, 48, 8);
FIELD(twh_problem, qk_dim, 56, 8);
FIELD(twh_problem, v_dim, 64, 8);
FIELD(twh_problem, scale, 72, 8);
FIELD(twh_problem, softcap, 80, 8);
FIELD(twh_problem, pattern, 88, 8);
FIELD(twh_problem, sequences, 96, 8);
FIELD(twh_problem, mask_dtype, 104, 4);
FIELD(twh_problem, reserved, 108, 4);

SIZE(twh_plan_options, 24);
FIELD(twh_plan_options, struct_size, 0, 4);
FIELD(twh_plan_options, flags, 4, 4);
FIELD(twh_plan_options, workspace_limit, 8, 8);
FIELD(twh_plan_options, max_calls_per_batch, 16, 8);

SIZE(twh_plan_info, 184);
FIELD(twh_plan_info, struct_size, 0, 4);
FIELD(twh_plan_info, flags, 4, 4);
FIELD(twh_plan_info, calls, 8, 8);
FIELD(twh_plan_info, repair_calls_max, 16, 8);
FIELD(twh_plan_info, rounds, 24, 8);
FIELD(twh_plan_info, rounds_max, 32, 8);
FIELD(twh_plan_info, tiles, 40, 8);
FIELD(twh_plan_info, full_tiles, 48, 8);
FIELD(twh_plan_info, lower_tiles, 56, 8);
FIELD(twh_plan_info, upper_tiles, 64, 8);
FIELD(twh_plan_info, band_tiles, 72, 8);
FIELD(twh_plan_info, short_tiles, 80, 8);
FIELD(twh_plan_info, lower_bound_calls, 88, 8);
FIELD(twh_plan_info, host_pairs, 96, 8);
FIELD(twh_plan_info, oracle, 104, 8);
FIELD(twh_plan_info, workspace_bytes, 112, 8);
FIELD(twh_plan_info, workspace_alignment, 120, 8);
FIELD(twh_plan_info, visible_pairs, 128, 8);
FIELD(twh_plan_info, oracle_flops, 136, 8);
FIELD(twh_plan_info, host_flops, 144, 8);
FIELD(twh_plan_info, utilisation, 152, 8);
FIELD(twh_plan_info, cost, 160, 8);
FIELD(twh_plan_info, host_tiles, 168, 8);
FIELD(twh_plan_info, slots_used, 176, 8);

SIZE(twh_tile_info, 208);
FIELD(twh_tile_info, struct_size, 0, 4);
FIELD(twh_tile_info, mask_mode, 4, 4);
FIELD(twh_tile_info, call, 8, 8);
FIELD(twh_tile_info, slot, 16, 8);
FIELD(twh_tile_info, calls, 24, 8);
FIELD(twh_tile_info, oracle, 32, 8);
FIELD(twh_tile_info, sequence, 40, 8);
FIELD(twh_tile_info, q_head, 48, 8);
FIELD(twh_tile_info, q_begin, 56, 8);
FIELD(twh_tile_info, q_len, 64, 8);
FIELD(twh_tile_info, k_begin, 72, 8);
FIELD(twh_tile_info, k_len, 80, 8);
FIELD(twh_tile_info, sink_begin, 88, 8);
FIELD(twh_tile_info, sink_len, 96, 8);
FIELD(twh_tile_info, q_at, 104, 8);
FIELD(twh_tile_info, k_at, 112, 8);
FIELD(twh_tile_info, shape, 120, 4);
FIELD(twh_tile_info, reversed, 124, 4);
FIELD(twh_tile_info, visible, 128, 80);

SIZE(twh_tensors, 80);
FIELD(twh_tensors, struct_size, 0, 4);
FIELD(twh_tensors, flags, 4, 4);
FIELD(twh_tensors, q, 8, 8);
FIELD(twh_tensors, k, 16, 8);
FIELD(twh_tensors, v, 24, 8);
FIELD(twh_tensors, out, 32, 8);
FIELD(twh_tensors, lse, 40, 8);
FIELD(twh_tensors, mask, 48, 8);
FIELD(twh_tensors, sink_logits, 56, 8);
FIELD(twh_tensors, key_bias, 64, 8);
FIELD(twh_tensors, alibi_slopes, 72, 8);

SIZE(twh_run_stats, 72);
FIELD(twh_run_stats, struct_size, 0, 4);
FIELD(twh_run_stats, flags, 4, 4);
FIELD(twh_run_stats, calls, 8, 8);
FIELD(twh_run_stats, batches, 16, 8);
FIELD(twh_run_stats, repair_calls, 24, 8);
FIELD(twh_run_stats, repaired_rows, 32, 8);
FIELD(twh_run_stats, host_rows, 40, 8);
FIELD(twh_run_stats, encoded_blocks, 48, 8);
FIELD(twh_run_stats, wall_s, 56, 8);
FIELD(twh_run_stats, oracle_s, 64, 8);

SIZE(twh_run_options, 48);
FIELD(twh_run_options, struct_size, 0, 4);
FIELD(twh_run_options, flags, 4, 4);
FIELD(twh_run_options, workspace, 8, 8);
FIELD(twh_run_options, workspace_bytes, 16, 8);
FIELD(twh_run_options, progress, 24, 8);
FIELD(twh_run_options, user, 32, 8);
FIELD(twh_run_options, stats, 40, 8);

SIZE(twh_blis_options, 24);
FIELD(twh_blis_options, struct_size, 0, 4);
FIELD(twh_blis_options, flags, 4, 4);
FIELD(twh_blis_options, log, 8, 8);
FIELD(twh_blis_options, user, 16, 8);

#endif
