/* The rest of layout.c, to which all that is said there applies: small and large transformers, twoheads_layers.h, twoheads_cpu.h. */
#include "layout.h"
#include "twoheads.h"
#include "twoheads_cpu.h"
#include "twoheads_layers.h"

VALUE(TWH_LAYER_SCALE, 1);
VALUE(TWH_LAYER_IN_OUT, 2);
VALUE(TWH_NORM_LAYER, 1);
VALUE(TWH_NORM_RMS, 2);
VALUE(TWH_GELU, 1);
VALUE(TWH_GELU_TANH, 2);
VALUE(TWH_SILU, 3);
VALUE(TWH_RELU, 4);
VALUE(TWH_ROTARY_HALVES, 1);
VALUE(TWH_ROTARY_NEIGHBOURS, 2);
VALUE(TWH_CPU_ISA_BEST, 0);
VALUE(TWH_CPU_ISA_PORTABLE, 1);
VALUE(TWH_CPU_ISA_AVX2, 2);
VALUE(TWH_CPU_ISA_AVX512, 3);
VALUE(TWH_CPU_ISA_NEON, 4);

#if defined(__LP64__)

SIZE(twh_cpu_options, 12);
FIELD(twh_cpu_options, struct_size, 0, 4);
FIELD(twh_cpu_options, flags, 4, 4);
FIELD(twh_cpu_options, isa, 8, 4);

SIZE(twh_transformer_weights, 136);
FIELD(twh_transformer_weights, struct_size, 0, 4);
FIELD(twh_transformer_weights, flags, 4, 4);
FIELD(twh_transformer_weights, wq, 8, 32);
FIELD(twh_transformer_weights, wk, 40, 32);
FIELD(twh_transformer_weights, wv, 72, 32);
FIELD(twh_transformer_weights, wo, 104, 32);

SIZE(twh_transformer_call, 40);
FIELD(twh_transformer_call, struct_size, 0, 4);
FIELD(twh_transformer_call, mask_mode, 4, 4);
FIELD(twh_transformer_call, index, 8, 8);
FIELD(twh_transformer_call, weights, 16, 8);
FIELD(twh_transformer_call, x, 24, 8);
FIELD(twh_transformer_call, out, 32, 8);

SIZE(twh_transformer_oracle_desc, 144);
FIELD(twh_transformer_oracle_desc, struct_size, 0, 4);
FIELD(twh_transformer_oracle_desc, flags, 4, 4);
FIELD(twh_transformer_oracle_desc, layers, 8, 8);
FIELD(twh_transformer_oracle_desc, heads, 16, 8);
FIELD(twh_transformer_oracle_desc, length, 24, 8);
FIELD(twh_transformer_oracle_desc, model_dim, 32, 8);
FIELD(twh_transformer_oracle_desc, qk_dim, 40, 8);
FIELD(twh_transformer_oracle_desc, v_dim, 48, 8);
FIELD(twh_transformer_oracle_desc, dtype, 56, 4);
FIELD(twh_transformer_oracle_desc, mask_modes, 60, 4);
FIELD(twh_transformer_oracle_desc, scale, 64, 8);
FIELD(twh_transformer_oracle_desc, alignment, 72, 8);
FIELD(twh_transformer_oracle_desc, max_calls_per_batch, 80, 8);
FIELD(twh_transformer_oracle_desc, max_concurrent_batches, 88, 8);
FIELD(twh_transformer_oracle_desc, cost_per_call, 96, 8);
FIELD(twh_transformer_oracle_desc, cost_per_batch, 104, 8);
FIELD(twh_transformer_oracle_desc, load, 112, 8);
FIELD(twh_transformer_oracle_desc, run, 120, 8);
FIELD(twh_transformer_oracle_desc, release, 128, 8);
FIELD(twh_transformer_oracle_desc, user, 136, 8);

SIZE(twh_matrix, 40);
FIELD(twh_matrix, struct_size, 0, 4);
FIELD(twh_matrix, dtype, 4, 4);
FIELD(twh_matrix, data, 8, 8);
FIELD(twh_matrix, rows, 16, 8);
FIELD(twh_matrix, cols, 24, 8);
FIELD(twh_matrix, row_stride, 32, 8);

SIZE(twh_gemm, 88);
FIELD(twh_gemm, struct_size, 0, 4);
FIELD(twh_gemm, b_dtype, 4, 4);
FIELD(twh_gemm, m, 8, 8);
FIELD(twh_gemm, n, 16, 8);
FIELD(twh_gemm, k, 24, 8);
FIELD(twh_gemm, a, 32, 8);
FIELD(twh_gemm, b, 40, 8);
FIELD(twh_gemm, c, 48, 8);
FIELD(twh_gemm, a_row_stride, 56, 8);
FIELD(twh_gemm, b_row_stride, 64, 8);
FIELD(twh_gemm, b_col_stride, 72, 8);
FIELD(twh_gemm, c_row_stride, 80, 8);

SIZE(twh_rows, 200);
FIELD(twh_rows, struct_size, 0, 4);
FIELD(twh_rows, flags, 4, 4);
FIELD(twh_rows, layer, 8, 8);
FIELD(twh_rows, row_begin, 16, 8);
FIELD(twh_rows, rows, 24, 8);
FIELD(twh_rows, positions, 32, 8);
FIELD(twh_rows, model_dim, 40, 8);
FIELD(twh_rows, x, 48, 8);
FIELD(twh_rows, x_stride, 56, 8);
FIELD(twh_rows, y, 64, 8);
FIELD(twh_rows, y_stride, 72, 8);
FIELD(twh_rows, q, 80, 8);
FIELD(twh_rows, k, 88, 8);
FIELD(twh_rows, v, 96, 8);
FIELD(twh_rows, q_stride, 104, 8);
FIELD(twh_rows, k_stride, 112, 8);
FIELD(twh_rows, v_stride, 120, 8);
FIELD(twh_rows, q_heads, 128, 8);
FIELD(twh_rows, kv_heads, 136, 8);
FIELD(twh_rows, qk_dim, 144, 8);
FIELD(twh_rows, v_dim, 152, 8);
FIELD(twh_rows, scratch, 160, 8);
FIELD(twh_rows, input, 168, 8);
FIELD(twh_rows, gemm, 176, 8);
FIELD(twh_rows, gemm_user, 184, 8);
FIELD(twh_rows, scratch_per_row, 192, 8);

SIZE(twh_layer_desc, 176);
FIELD(twh_layer_desc, struct_size, 0, 4);
FIELD(twh_layer_desc, flags, 4, 4);
FIELD(twh_layer_desc, q_heads, 8, 8);
FIELD(twh_layer_desc, kv_heads, 16, 8);
FIELD(twh_layer_desc, qk_dim, 24, 8);
FIELD(twh_layer_desc, v_dim, 32, 8);
FIELD(twh_layer_desc, scale, 40, 8);
FIELD(twh_layer_desc, softcap, 48, 8);
FIELD(twh_layer_desc, pattern, 56, 8);
FIELD(twh_layer_desc, wq, 64, 8);
FIELD(twh_layer_desc, wk, 72, 8);
FIELD(twh_layer_desc, wv, 80, 8);
FIELD(twh_layer_desc, wo, 88, 8);
FIELD(twh_layer_desc, bq, 96, 8);
FIELD(twh_layer_desc, bk, 104, 8);
FIELD(twh_layer_desc, bv, 112, 8);
FIELD(twh_layer_desc, bo, 120, 8);
FIELD(twh_layer_desc, sink_logits, 128, 8);
FIELD(twh_layer_desc, alibi_slopes, 136, 8);
FIELD(twh_layer_desc, before, 144, 8);
FIELD(twh_layer_desc, heads, 152, 8);
FIELD(twh_layer_desc, after, 160, 8);
FIELD(twh_layer_desc, user, 168, 8);

SIZE(twh_transformer_desc, 112);
FIELD(twh_transformer_desc, struct_size, 0, 4);
FIELD(twh_transformer_desc, flags, 4, 4);
FIELD(twh_transformer_desc, batch, 8, 8);
FIELD(twh_transformer_desc, length, 16, 8);
FIELD(twh_transformer_desc, lengths, 24, 8);
FIELD(twh_transformer_desc, model_dim, 32, 8);
FIELD(twh_transformer_desc, n_layers, 40, 8);
FIELD(twh_transformer_desc, layers, 48, 8);
FIELD(twh_transformer_desc, embed, 56, 8);
FIELD(twh_transformer_desc, finish, 64, 8);
FIELD(twh_transformer_desc, user, 72, 8);
FIELD(twh_transformer_desc, gemm, 80, 8);
FIELD(twh_transformer_desc, gemm_user, 88, 8);
FIELD(twh_transformer_desc, block_rows, 96, 8);
FIELD(twh_transformer_desc, scratch_per_row, 104, 8);

SIZE(twh_transformer_info, 88);
FIELD(twh_transformer_info, struct_size, 0, 4);
FIELD(twh_transformer_info, flags, 4, 4);
FIELD(twh_transformer_info, rows, 8, 8);
FIELD(twh_transformer_info, calls, 16, 8);
FIELD(twh_transformer_info, repair_calls_max, 24, 8);
FIELD(twh_transformer_info, rounds, 32, 8);
FIELD(twh_transformer_info, rounds_max, 40, 8);
FIELD(twh_transformer_info, plans, 48, 8);
FIELD(twh_transformer_info, block_rows, 56, 8);
FIELD(twh_transformer_info, blocks, 64, 8);
FIELD(twh_transformer_info, workspace_bytes, 72, 8);
FIELD(twh_transformer_info, workspace_alignment, 80, 8);

SIZE(twh_transformer_stats, 104);
FIELD(twh_transformer_stats, struct_size, 0, 4);
FIELD(twh_transformer_stats, flags, 4, 4);
FIELD(twh_transformer_stats, calls, 8, 8);
FIELD(twh_transformer_stats, batches, 16, 8);
FIELD(twh_transformer_stats, repair_calls, 24, 8);
FIELD(twh_transformer_stats, repaired_rows, 32, 8);
FIELD(twh_transformer_stats, host_rows, 40, 8);
FIELD(twh_transformer_stats, encoded_blocks, 48, 8);
FIELD(twh_transformer_stats, rounds, 56, 8);
FIELD(twh_transformer_stats, row_rounds, 64, 8);
FIELD(twh_transformer_stats, blocks, 72, 8);
FIELD(twh_transformer_stats, wall_s, 80, 8);
FIELD(twh_transformer_stats, oracle_s, 88, 8);
FIELD(twh_transformer_stats, rows_s, 96, 8);

SIZE(twh_transformer_options, 56);
FIELD(twh_transformer_options, struct_size, 0, 4);
FIELD(twh_transformer_options, flags, 4, 4);
FIELD(twh_transformer_options, input, 8, 8);
FIELD(twh_transformer_options, workspace, 16, 8);
FIELD(twh_transformer_options, workspace_bytes, 24, 8);
FIELD(twh_transformer_options, progress, 32, 8);
FIELD(twh_transformer_options, user, 40, 8);
FIELD(twh_transformer_options, stats, 48, 8);

SIZE(twh_norm, 40);
FIELD(twh_norm, struct_size, 0, 4);
FIELD(twh_norm, kind, 4, 4);
FIELD(twh_norm, epsilon, 8, 8);
FIELD(twh_norm, weight_offset, 16, 8);
FIELD(twh_norm, weight, 24, 8);
FIELD(twh_norm, bias, 32, 8);

SIZE(twh_rotary, 32);
FIELD(twh_rotary, struct_size, 0, 4);
FIELD(twh_rotary, pairing, 4, 4);
FIELD(twh_rotary, dims, 8, 8);
FIELD(twh_rotary, base, 16, 8);
FIELD(twh_rotary, frequencies, 24, 8);

SIZE(twh_mlp, 64);
FIELD(twh_mlp, struct_size, 0, 4);
FIELD(twh_mlp, flags, 4, 4);
FIELD(twh_mlp, activation, 8, 4);
FIELD(twh_mlp, reserved, 12, 4);
FIELD(twh_mlp, w_gate, 16, 8);
FIELD(twh_mlp, w_up, 24, 8);
FIELD(twh_mlp, w_down, 32, 8);
FIELD(twh_mlp, b_gate, 40, 8);
FIELD(twh_mlp, b_up, 48, 8);
FIELD(twh_mlp, b_down, 56, 8);

SIZE(twh_block, 88);
FIELD(twh_block, struct_size, 0, 4);
FIELD(twh_block, flags, 4, 4);
FIELD(twh_block, input_norm, 8, 8);
FIELD(twh_block, q_norm, 16, 8);
FIELD(twh_block, k_norm, 24, 8);
FIELD(twh_block, attention_out_norm, 32, 8);
FIELD(twh_block, attention_sum_norm, 40, 8);
FIELD(twh_block, mlp_input_norm, 48, 8);
FIELD(twh_block, mlp_out_norm, 56, 8);
FIELD(twh_block, mlp_sum_norm, 64, 8);
FIELD(twh_block, rotary, 72, 8);
FIELD(twh_block, mlp, 80, 8);

SIZE(twh_embedding, 56);
FIELD(twh_embedding, struct_size, 0, 4);
FIELD(twh_embedding, flags, 4, 4);
FIELD(twh_embedding, scale, 8, 8);
FIELD(twh_embedding, tokens, 16, 8);
FIELD(twh_embedding, positions, 24, 8);
FIELD(twh_embedding, types, 32, 8);
FIELD(twh_embedding, norm, 40, 8);
FIELD(twh_embedding, final_norm, 48, 8);

#endif
