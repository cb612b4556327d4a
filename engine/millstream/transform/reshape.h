#pragma once

#include <map>
#include <string>

#include "millstream/transform/transform.h"

namespace millstream {

/// Joins the axes of a field from `first_axis` on into one axis. Copies no bytes.
class Flatten final : public Transform {
 public:
  explicit Flatten(std::string field, int first_axis = 0);

  std::string str() const override;
  StageKind kind() const noexcept override { return StageKind::kFlatten; }
  bool draws() const noexcept override { return false; }
  Flow flow(const Schema& input) const override;
  Traits traits() const noexcept override { return {}; }
  void apply(const Flow&, const Request&, const Rows&, Rows&) const override {}
  WorkerPool* worker_pool() const noexcept override { return nullptr; }

 private:
  std::string field_;
  int first_axis_;
};

/// Renames fields. Copies no bytes.
class Rename final : public Transform {
 public:
  explicit Rename(std::map<std::string, std::string> names);

  std::string str() const override { return "rename"; }
  StageKind kind() const noexcept override { return StageKind::kRename; }
  bool draws() const noexcept override { return false; }
  Flow flow(const Schema& input) const override;
  Traits traits() const noexcept override { return {}; }
  void apply(const Flow&, const Request&, const Rows&, Rows&) const override {}
  WorkerPool* worker_pool() const noexcept override { return nullptr; }

 private:
  std::map<std::string, std::string> names_;
};

}  // namespace millstream
