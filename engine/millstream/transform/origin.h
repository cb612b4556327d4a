#pragma once

#include <string>

#include "millstream/transform/transform.h"

namespace millstream {

/// Appends two uint32 fields to each sample: its epoch, and the low 32 bits of its
/// index. With them, stages outside the engine can compute a random key for each row.
/// The names of the two fields differ from those of all other fields.
class Origin final : public Transform {
 public:
  std::string str() const override { return "origin"; }
  StageKind kind() const noexcept override { return StageKind::kMap; }
  bool draws() const noexcept override { return false; }
  Flow flow(const Schema& input) const override;
  Traits traits() const noexcept override { return {}; }
  void apply(const Flow& flow, const Request& request, const Rows& in,
             Rows& out) const override;
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
};

}  // namespace millstream
