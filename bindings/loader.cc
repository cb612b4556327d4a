#include "loader.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "millstream/core/error.h"
#include "millstream/loader/state.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {
namespace {

/// The words of a state. Borrows them from an array that outlives the call.
struct StateWords {
  const std::uint32_t* data = nullptr;

  std::span<const std::uint32_t, kStateWords> words() const {
    return std::span<const std::uint32_t, kStateWords>(data, kStateWords);
  }
};

}  // namespace
}  // namespace millstream::python

template <>
struct nanobind::detail::type_caster<millstream::python::StateWords> {
  NB_TYPE_CASTER(millstream::python::StateWords,
                 const_name("numpy.typing.NDArray[numpy.uint32]"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
    value.data = millstream::python::words_of(source, millstream::kStateWords);
    return value.data != nullptr;
  }
};

namespace millstream::python {
namespace {

using PlanHandle = Handle<Plan>;

/// How often a waiting thread lets Python handle signals.
constexpr std::chrono::milliseconds kPollInterval{50};

Transforms shared(const std::vector<Handle<Transform>>& handles) {
  Transforms transforms;
  for (const auto& handle : handles) transforms.push_back(handle.shared);
  return transforms;
}

PlanHandle plan(const Handle<Source>& source, const Handle<Order>& order,
                std::int64_t batch_size, const std::string& remainder,
                const std::vector<Handle<Transform>>& before,
                const std::vector<Handle<Transform>>& after, bool skip,
                std::uint64_t filter) {
  Schedule schedule(order.shared, batch_size, remainder_named(remainder));
  return {std::make_shared<Plan>(source.shared, std::move(schedule), shared(before),
                                 shared(after), skip, filter)};
}

Position position(const Plan& plan, const StateWords& state) {
  return decoded(plan, state.words());
}

/// An array with one value per row of a batch. `fill` writes the values.
template <typename T, typename Fill>
nb::object row_array(const Plan& plan, Fill&& fill) {
  const auto rows = static_cast<std::size_t>(plan.batch_size());
  auto* data = new T[rows];
  const nb::capsule owner(
      data, [](void* pointer) noexcept { delete[] static_cast<T*>(pointer); });
  fill(std::span(data, rows));
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {rows}, owner));
}

nb::object indices(const PlanHandle& handle, const StateWords& state) {
  const Plan& plan = *handle.shared;
  return row_array<std::int64_t>(plan, [&](std::span<std::int64_t> out) {
    plan.schedule().run(position(plan, state), 0, out);
  });
}

nb::object epochs(const PlanHandle& handle, const StateWords& state) {
  const Plan& plan = *handle.shared;
  return row_array<std::uint32_t>(plan, [&](std::span<std::uint32_t> out) {
    plan.schedule().epochs(position(plan, state), 0, out);
  });
}

std::unique_ptr<RegisteredLoader> loader(
    const PlanHandle& plan, const std::vector<std::string>& dtypes, int threads,
    int prefetch, std::int64_t budget,
    const std::vector<std::pair<std::int64_t, std::int64_t>>& shards, int devices) {
  LocalShards local{{}, devices};
  for (const auto& [first, count] : shards) local.rows.push_back({first, count});
  std::vector<DType> types;
  for (const std::string& dtype : dtypes) types.push_back(dtype_named(dtype));
  return std::make_unique<RegisteredLoader>(std::make_shared<Loader>(
      plan.shared, types, LoaderOptions{threads, prefetch, budget}, local));
}

/// Lets Python raise KeyboardInterrupt while it waits.
std::shared_ptr<const Batch> take_batch(RegisteredLoader& loader,
                                        const StateWords& state) {
  Loader& running = *loader.shared;
  const DeliveryRequest request{.position = position(running.plan(), state),
                                .timeout = kPollInterval,
                                .may_call = true};
  while (true) {
    try {
      const GilRelease released;
      if (auto batch = running.deliver(request).batch) return batch;
    } catch (const Cancelled&) {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      throw;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

nb::list take(RegisteredLoader& loader, const StateWords& state) {
  return batch_arrays(take_batch(loader, state), loader.shared->layout());
}

nb::tuple take_with_host_values(RegisteredLoader& loader, const StateWords& state) {
  std::shared_ptr<const Batch> batch = take_batch(loader, state);
  nb::list host_values = host_values_of(*batch);
  return nb::make_tuple(batch_arrays(std::move(batch), loader.shared->layout()),
                        host_values);
}

nb::object take_if_ready(RegisteredLoader& loader, const StateWords& state) {
  Loader& running = *loader.shared;
  auto batch = running
                   .deliver({.position = position(running.plan(), state),
                             .timeout = std::chrono::milliseconds(0),
                             .may_call = true})
                   .batch;
  if (batch == nullptr) return nb::none();
  return batch_arrays(std::move(batch), running.layout());
}

nb::list take_shard(RegisteredLoader& loader, const StateWords& state,
                    std::int64_t first, std::int64_t count) {
  Loader& running = *loader.shared;
  const Position at = position(running.plan(), state);
  const std::size_t shard = running.shard_of({first, count});
  std::shared_ptr<const Batch> batch;
  {
    const GilRelease released;
    batch = running.deliver({.position = at, .shard = RowRange{first, count}}).batch;
  }
  return batch_arrays(std::move(batch), running.layout(), shard, 1);
}

/// Makes the batch on one thread without a cache, as `Plan::batch` specifies it.
nb::list batch(RegisteredLoader& loader, const StateWords& state) {
  const Plan& plan = loader.shared->plan();
  const Position at = position(plan, state);
  auto slots = std::make_shared<Slots>(loader.shared->layout(), 0, plan.worker_pool());
  auto made = slots->take();
  {
    const GilRelease released;
    const std::span<const RowRange> shards = slots->layout().shards();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      plan.row_range(at, shards[i].first, shards[i].count, made->columns(i),
                     made->mask(i), thread_memory());
    }
  }
  return batch_arrays(std::move(made), slots->layout());
}

nb::object last_error(RegisteredLoader& loader) {
  const std::exception_ptr error = loader.shared->last_error();
  if (!error) return nb::none();
  // Throws the error through nanobind once, so that the exception translator chooses
  // the Python type.
  const nb::object raiser =
      nb::cpp_function([error] { std::rethrow_exception(error); });
  try {
    raiser();
  } catch (nb::python_error& raised) {
    return nb::borrow(raised.value());
  }
  return nb::none();
}

State later_state(const Plan& plan, const StateWords& state, int steps) {
  State after;
  std::ranges::copy(state.words(), after.begin());
  for (int k = 0; k < steps; ++k) after = millstream::next_state(plan, after);
  return after;
}

nb::object next_state(const PlanHandle& handle, const StateWords& state, int steps) {
  const State after = later_state(*handle.shared, state, steps);
  return words_array(after.data(), after.size());
}

}  // namespace

nb::list batch_arrays(std::shared_ptr<const Batch> batch, const Layout& layout,
                      std::size_t first_shard, std::size_t shards) {
  auto* owner = new std::shared_ptr<const Batch>(std::move(batch));
  const nb::capsule capsule(owner, [](void* pointer) noexcept {
    delete static_cast<std::shared_ptr<const Batch>*>(pointer);
  });
  nb::list result;
  const std::size_t end = std::min(shards, layout.shards().size() - first_shard);
  for (std::size_t shard = first_shard; shard < first_shard + end; ++shard) {
    const std::int64_t rows = layout.shards()[shard].count;
    for (const Column& column : (*owner)->columns(shard)) {
      result.append(rows_array(column.dtype, column.shape, column.data, rows,
                               column.stride, capsule));
    }
    auto* mask = reinterpret_cast<std::byte*>((*owner)->mask(shard));
    result.append(rows_array(DType::kBool, {}, mask, rows, 1, capsule));
  }
  return result;
}

nb::list host_values_of(const Batch& batch) {
  nb::list result;
  for (const HostValue& value : batch.host_values().values()) {
    result.append(nb::make_tuple(value.row, python_value(value)));
  }
  return result;
}

nb::object python_value(const HostValue& value) {
  if (value.object == nullptr) {
    return nb::bytes(value.bytes.data(), value.bytes.size());
  }
  return nb::make_tuple(nb::handle(
      const_cast<PyObject*>(static_cast<const PyObject*>(value.object.get()))));
}

void bind_loader(nb::module_& module) {
  nb::class_<Traits>(
      module, "Traits",
      "The costs and possible failures of reading a source and applying stages.")
      .def_ro("waits", &Traits::waits,
              "Whether the calling thread waits for a disk or for workers.")
      .def_ro("cheap", &Traits::cheap, "Whether the cost is about that of a copy.")
      .def_ro("may_fail", &Traits::may_fail, "Whether some rows may raise an error.")
      .def_ro("blocks", &Traits::blocks,
              "How many samples are best read together; 0 if each can be read alone.")
      .def_ro("workers", &Traits::workers, "How many workers make the samples.")
      .def_ro("draws", &Traits::draws,
              "Whether the source's samples depend on the seed and the epoch.")
      .def_prop_ro("immediate", &Traits::immediate,
                   "Whether the calling thread can do the work at once: cheap and "
                   "without waiting.");

  nb::class_<PlanHandle>(module, "Plan", "A validated pipeline.")
      .def_prop_ro(
          "schema", [](const PlanHandle& p) { return described(p.shared->schema()); },
          "(name, dtype, shape) of each field of a batch, without the batch axis.")
      .def_prop_ro("steps",
                   [](const PlanHandle& p) { return p.shared->schedule().steps(); })
      .def_prop_ro("batch_size",
                   [](const PlanHandle& p) { return p.shared->batch_size(); })
      .def_prop_ro(
          "traits", [](const PlanHandle& p) { return p.shared->traits(); },
          "The combined traits of the source and of all stages.")
      .def_prop_ro("digest", [](const PlanHandle& p) { return p.shared->digest(); })
      .def_prop_ro(
          "source_schema",
          [](const PlanHandle& p) { return described(p.shared->source().schema()); },
          "(name, dtype, shape) of each field of a sample.")
      .def_prop_ro(
          "order_digest",
          [](const PlanHandle& p) {
            Digest digest;
            p.shared->schedule().order().add_to(digest);
            return digest.value();
          },
          "A hash of everything that determines the order of the samples.")
      .def_prop_ro(
          "epoch_length",
          [](const PlanHandle& p) { return p.shared->schedule().order().length(); },
          "How many samples an epoch visits.")
      .def_prop_ro("check_word",
                   [](const PlanHandle& p) { return check_word(*p.shared); })
      .def("indices", indices, "state"_a,
           "Returns the sample index of each row of the batch; -1 in padding.")
      .def("epochs", epochs, "state"_a,
           "Returns the epoch of each row of the batch. With remainder=\"wrap\", rows "
           "may be of different epochs.")
      .def("next_state", next_state, "state"_a, "steps"_a = 1,
           nb::sig("def next_state(self, state: NDArray[numpy.uint32], steps: int = 1) "
                   "-> NDArray[numpy.uint32]"),
           "Returns the state of the following batch, or of the batch `steps` later.")
      .def(
          "valid_rows",
          [](const PlanHandle& p, const StateWords& state) {
            return p.shared->schedule().valid_rows(position(*p.shared, state));
          },
          "state"_a, "Returns how many rows of the batch are samples, not padding.");

  module.def("plan", plan, "source"_a, "order"_a, "batch_size"_a, "remainder"_a,
             "before"_a, "after"_a, "skip"_a = false, "filter"_a = 0,
             "Builds and validates a pipeline.");

  nb::class_<RegisteredLoader>(module, "Loader",
                               "Makes the batches of a plan and delivers them.")
      .def_prop_ro("serial",
                   [](const RegisteredLoader& l) { return l.registration->serial(); })
      .def_prop_ro(
          "number",
          [](nb::handle self) {
            auto& words = nb::cast<RegisteredLoader&>(self).number;
            return rows_array(DType::kUint32, Shape(),
                              reinterpret_cast<std::byte*>(words), std::ssize(words),
                              sizeof(*words), self);
          },
          nb::sig("def number(self) -> NDArray[numpy.uint32]"),
          "The serial number, (low, high). The array keeps the loader alive.")
      .def_prop_ro(
          "traits", [](const RegisteredLoader& l) { return l.shared->traits(); },
          "The traits of the plan. Batches may also fail if they hold 64-bit integers "
          "as 32-bit ones.")
      .def_prop_ro("threads",
                   [](const RegisteredLoader& l) { return l.shared->threads(); })
      .def_prop_ro("prefetch",
                   [](const RegisteredLoader& l) { return l.shared->prefetch(); })
      .def_prop_ro("batch_bytes",
                   [](const RegisteredLoader& l) { return l.shared->layout().bytes(); })
      .def_prop_ro(
          "live", [](const RegisteredLoader& l) { return l.shared->live(); },
          "How many batches of `take` are still in use.")
      .def_prop_ro(
          "delivered", [](const RegisteredLoader& l) { return l.shared->delivered(); },
          "How many batches were delivered so far.")
      .def_prop_ro(
          "samples_delivered",
          [](const RegisteredLoader& l) { return l.shared->samples_delivered(); },
          "How many samples the delivered batches had, without padding.")
      .def_prop_ro(
          "bytes_read",
          [](const RegisteredLoader& l) { return l.shared->bytes_read(); },
          "How many bytes of samples the source has read so far.")
      .def_prop_ro(
          "held_back", [](const RegisteredLoader& l) { return l.shared->held_back(); },
          "How many samples were made in a group of batches and not handed out.")
      .def(
          "hand_out",
          [](RegisteredLoader& l, const StateWords& state, int steps) {
            const Plan& plan = l.shared->plan();
            l.shared->hand_out(decoded(plan, later_state(plan, state, steps)));
          },
          "state"_a, "steps"_a,
          "Counts the batch `steps` after a state as delivered. A call that delivered "
          "several batches has made it.")
      .def_prop_ro("last_error", last_error, "The last error inside jit, or None.")
      .def(
          "forget_error",
          [](RegisteredLoader& l) {
            const GilRelease released;
            l.shared->remember(nullptr);
          },
          "Sets `last_error` to None.")
      .def("take", take, "state"_a,
           "Returns the arrays of the batch: each field, then the mask, for one shard "
           "after the other. Waits until the batch is ready.")
      .def("take_with_host_values", take_with_host_values, "state"_a,
           "Returns what `take` returns, and the host values of the batch.")
      .def_prop_ro(
          "skipped", [](const RegisteredLoader& l) { return l.shared->skipped(); },
          "The samples that delivered batches have skipped, each with its error.")
      .def("take_if_ready", take_if_ready, "state"_a,
           "Returns what `take` returns if the batch is ready, or else None.")
      .def(
          "abandon",
          [](RegisteredLoader& l, const StateWords& state) {
            l.shared->abandon(position(l.shared->plan(), state));
          },
          "state"_a,
          "Tells the loader that no iterator continues at this state. It may drop the "
          "batches that it made ahead from there.")
      .def("take_shard", take_shard, "state"_a, "first"_a, "count"_a,
           "Returns the arrays of one shard. All shards get rows of the same batch.")
      .def("batch", batch, "state"_a,
           "Makes the batch on the calling thread, without a cache.");

  module.def("loader", loader, "plan"_a, "dtypes"_a, "threads"_a, "prefetch"_a,
             "budget"_a = -1,
             "shards"_a = std::vector<std::pair<std::int64_t, std::int64_t>>(),
             "devices"_a = 1,
             R"(
Creates a loader for a plan.

Args:
  plan: The plan.
  dtypes: The dtype of each field in the batches.
  threads: The largest number of threads; 0 for as many as the process may use.
  prefetch: How many batches are made ahead; -1 for the default.
  budget: How many samples may be skipped; -1 for no limit.
  shards: (first, count) of the rows of each local shard; empty for whole batches.
  devices: How many local devices request shards of a batch.)");
}

}  // namespace millstream::python
