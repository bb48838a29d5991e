// A device of torch's whose memory is the host's and whose kernels are C++: what bringing up a device looks like.
//
// install("aten::mm,aten::bmm") gives every operator a kernel; that of those named is at::native::cpu_fallback, which
// copies to the host, computes there and copies back, without a word. "*" gives none, so that all fall back to it.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/record_function.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <sstream>
#include <string>
#include <unordered_set>

namespace {

using at::Tensor;
constexpr auto KEY = c10::DispatchKey::PrivateUse1;
constexpr auto KIND = c10::DeviceType::PrivateUse1;

struct DeviceAllocator final : at::Allocator {
  at::DataPtr allocate(size_t size) override {
    void* data = c10::alloc_cpu(size);
    return {data, data, &c10::free_cpu, at::Device(KIND, 0)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }
};
DeviceAllocator allocator;

// What the device's kernels compute with: the same bytes as a tensor of the host.
Tensor raw(const Tensor& tensor) {
  auto options = tensor.options().device(at::kCPU);
  return at::for_blob(tensor.data_ptr(), tensor.sizes()).strides(tensor.strides()).options(options).make_tensor();
}

// A tensor of the device that owns what a kernel has made.
Tensor made(const Tensor& result) {
  auto* kept = new Tensor(result);
  c10::DataPtr data(result.storage().mutable_data(), kept,
                    [](void* one) { delete static_cast<Tensor*>(one); }, at::Device(KIND, 0));
  c10::Storage storage(c10::Storage::use_byte_size_t{}, result.storage().nbytes(), std::move(data), &allocator, true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(KEY), result.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(), result.storage_offset());
  return tensor;
}

c10::IValue for_kernel(const c10::IValue& value) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    return tensor.defined() && tensor.device().type() == KIND ? c10::IValue(raw(tensor)) : value;
  }
  if (value.isTensorList()) {
    std::vector<Tensor> all;
    for (const Tensor& one : value.toTensorVector()) all.push_back(for_kernel(one).toTensor());
    return all;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> all;
    for (const auto& one : value.toOptionalTensorVector())
      all.push_back(one ? std::optional<Tensor>(for_kernel(*one).toTensor()) : std::nullopt);
    return all;
  }
  if (value.isDevice()) return c10::Device(c10::kCPU);
  return value;
}

c10::IValue of_device(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) return made(value.toTensor());
  if (value.isTensorList()) {
    std::vector<Tensor> all;
    for (const Tensor& one : value.toTensorVector()) all.push_back(made(one));
    return all;
  }
  return value;
}

// One operator's kernel. Nothing of what it does inside is told to profilers, as a vendor's kernel wouldn't.
void kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::RecordFunctionGuard quiet(false);
  const auto& schema = op.schema();
  const auto count = schema.arguments().size();
  const auto begin = stack->size() - count;
  std::vector<c10::IValue> given(stack->begin() + begin, stack->end());
  std::vector<std::pair<Tensor, Tensor>> grown;  // what comes in empty, to be written, takes the memory it is given
  for (size_t i = 0; i < count; ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias && alias->isWrite() && given[i].isTensor() && given[i].toTensor().numel() == 0) {
      const auto& empty = given[i].toTensor();
      grown.emplace_back(empty, at::empty({0}, empty.options().device(at::kCPU)));
      (*stack)[begin + i] = grown.back().second;
    } else {
      (*stack)[begin + i] = for_kernel(given[i]);
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (auto& [tensor, result] : grown) {
    const auto there = made(result);
    tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(there.storage());
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(there.sizes(), there.strides(), there.storage_offset());
  }
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const auto* alias = schema.returns()[i].alias_info();
    auto& result = (*stack)[stack->size() - schema.returns().size() + i];
    bool same = false;
    for (size_t j = 0; alias && alias->isWrite() && j < count && !same; ++j) {
      const auto* of_argument = schema.arguments()[j].alias_info();
      same = of_argument && *of_argument == *alias;
      if (same) result = given[j];
    }
    if (!same) result = of_device(result);
  }
}

void on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator, c10::DispatchKeySet(KEY),
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator,
                                           c10::DispatchKeySet(KEY), c10::dtype_or_default(dtype));
}

Tensor on_cpu(const Tensor& tensor) { return tensor.device().type() == KIND ? raw(tensor) : tensor; }

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  at::RecordFunctionGuard quiet(false);
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar number(const Tensor& tensor) {
  at::RecordFunctionGuard quiet(false);
  return raw(tensor).item();
}

Tensor& set_storage(Tensor& tensor, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                    c10::SymIntArrayRef stride) {
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                                      offset.expect_int());
  return tensor;
}

// One device with one stream, on which everything is done when a call returns.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  c10::Device exchangeDevice(c10::Device) const override { return here(); }
  c10::Device getDevice() const override { return here(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const override { return stream(); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  static c10::Device here() { return {KIND, 0}; }
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, here()); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const override { return true; }
};
Hooks hooks;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

const std::unordered_set<std::string> BY_HAND = {
    "aten::empty.memory_format", "aten::empty_strided", "aten::_copy_from", "aten::_copy_from_and_resize",
    "aten::_local_scalar_dense", "aten::set_.source_Storage_storage_offset", "aten::as_strided", "aten::view",
    "aten::_reshape_alias", "aten::resize_", "aten::unfold", "aten::view_as_complex", "aten::view_as_real"};

const Tensor& resize(const Tensor& tensor, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(tensor, C10_AS_INTARRAYREF_SLOW(size), format);
}

}  // namespace

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator);
namespace {
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", number);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", [](const Tensor& self, c10::SymIntArrayRef size) {
    return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
  });
  library.impl("_reshape_alias", [](const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
    return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
  });
  library.impl("resize_", resize);
  library.impl("unfold", at::native::unfold);
  library.impl("view_as_complex", at::native::view_as_complex);
  library.impl("view_as_real", at::native::view_as_real);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_host>()); }

extern "C" void install(const char* left_to_host) {
  std::unordered_set<std::string> left;
  std::stringstream names(left_to_host);
  for (std::string name; std::getline(names, name, ',');) left.insert(name);
  if (left.count("*")) return;
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", KEY, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto full = c10::toString(name);
    if (full.rfind("aten::", 0) != 0 || BY_HAND.count(full)) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    // Left to the host by a kernel of its own: some would be made of other operators instead of falling back.
    library->impl(full.c_str(), left.count(name.name) ? torch::CppFunction::makeFromBoxedFunction<&on_host>()
                                                      : torch::CppFunction::makeFromBoxedFunction<&kernel>());
  }
}
